//! What a process prints becomes events. Nothing is read while a chunk is being written, so that a process
//! that prints faster than the store takes it waits, and memory stays small.

use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use waypost_kernel::request::Level;

use super::chunk::{Chunk, Line};
use super::lines::Lines;
use crate::actions::Mask;
use crate::report::journal::Journal;
use crate::steps::{TaskBoard, task_progress};

/// How an event's lines name the streams.
const OUT: &str = "out";
const ERR: &str = "err";

const READ_BYTES: usize = 16 * 1024;

/// One of a process's two streams; closed once it ended.
struct Stream<R> {
    name: &'static str,
    source: Option<R>,
    buffer: Vec<u8>,
    lines: Lines,
    last_line: Option<String>,
}

impl<R: AsyncRead + Unpin> Stream<R> {
    fn new(name: &'static str, source: R, mask: &Mask) -> Stream<R> {
        let buffer = vec![0; READ_BYTES];
        Stream { name, source: Some(source), buffer, lines: Lines::new(mask.clone()), last_line: None }
    }

    /// How many bytes came; none at the end. Never returns once closed.
    async fn read(&mut self) -> usize {
        match &mut self.source {
            Some(source) => source.read(&mut self.buffer).await.unwrap_or(0),
            None => std::future::pending().await,
        }
    }
}

/// Reads both streams to their ends; gives the last line of the second, which is where programs say why they
/// failed. `enough` ends the reading early: a stray process may keep a stream open for ever.
pub(super) async fn record(
    out: impl AsyncRead + Unpin,
    err: impl AsyncRead + Unpin,
    mut recorder: Listener,
    mut enough: oneshot::Receiver<()>,
) -> Option<String> {
    let mut out = Stream::new(OUT, out, &recorder.mask);
    let mut err = Stream::new(ERR, err, &recorder.mask);
    while out.source.is_some() || err.source.is_some() {
        let due = recorder.chunk.due();
        if due.is_some_and(|due| due <= Instant::now()) {
            recorder.flush().await;
            continue;
        }
        tokio::select! {
            bytes = out.read() => recorder.take(&mut out, bytes).await,
            bytes = err.read() => recorder.take(&mut err, bytes).await,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            _ = &mut enough => {
                recorder.take(&mut out, 0).await;
                recorder.take(&mut err, 0).await;
            }
        }
    }
    recorder.flush().await;
    err.last_line
}

/// Who is told what a process prints.
pub(super) struct Listener {
    journal: Arc<Journal>,
    mask: Mask,
    board: Option<Arc<TaskBoard>>,
    /// Whose lines they are: those of several steps may come by turns.
    step: Option<String>,
    chunk: Chunk,
}

impl Listener {
    pub fn new(
        journal: Arc<Journal>,
        mask: Mask,
        board: Option<Arc<TaskBoard>>,
        step: Option<String>,
    ) -> Listener {
        Listener { journal, mask, board, step, chunk: Chunk::default() }
    }

    async fn take<R>(&mut self, stream: &mut Stream<R>, bytes: usize) {
        let buffer = std::mem::take(&mut stream.buffer);
        // Nobody will see it; only the last words of the second stream still count.
        let unseen = self.journal.is_output_cut() && stream.name == OUT;
        let mut unread = if unseen { &[][..] } else { &buffer[..bytes] };
        while let Some(text) = stream.lines.next(&mut unread) {
            self.line(stream.name, &mut stream.last_line, text).await;
        }
        if bytes == 0 {
            stream.source = None;
            if let Some(text) = stream.lines.rest() {
                self.line(stream.name, &mut stream.last_line, text).await;
            }
        }
        stream.buffer = buffer;
        if let Some(board) = &self.board {
            board.flush().await;
        }
    }

    async fn line(&mut self, stream: &'static str, last_line: &mut Option<String>, text: String) {
        if !text.trim().is_empty() {
            last_line.get_or_insert_default().clone_from(&text);
        }
        if let Some(board) = self.board.as_ref().filter(|_| stream == OUT)
            && let Some((name, progress)) = task_progress(&text)
        {
            return board.report(name, progress);
        }
        self.journal.remember(&text);
        let line = Line::new(stream, text);
        if !self.journal.spend_output(line.bytes) {
            if self.journal.cut_output() {
                self.flush().await;
                self.journal.note(Level::Warn, "output cut after 16 MiB", json!({ "cut": true })).await;
            }
            return;
        }
        if !self.chunk.has_room_for(&line) {
            self.flush().await;
        }
        self.chunk.push(line);
    }

    async fn flush(&mut self) {
        if let Some(mut payload) = self.chunk.take() {
            if let Some(step) = &self.step {
                payload["step"] = json!(step);
            }
            self.journal.note(Level::Info, "output", payload).await;
        }
    }
}
