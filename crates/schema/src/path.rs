//! Where a value stands. The way down is kept on the stack: it is written out only where something is wrong, or where
//! the node is to keep it.

use crate::words::quoted;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

/// A name longer than this is cut in a request's path.
const MAX_NAME_CHARS: usize = 100;

impl<'a> Path<'a> {
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    pub fn key(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(name) }
    }

    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// `step[0].http.url`: what is no plain name is quoted, so that a terminal obeys nothing in it.
    pub fn in_file(&self) -> String {
        let mut path = self.parent.map(Path::in_file).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Key(name) => {
                let is_plain = !name.is_empty()
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
                    && name.len() <= 64;
                if !path.is_empty() {
                    path.push('.');
                }
                match is_plain {
                    true => path.push_str(name),
                    false => path.push_str(&quoted(name).replace('`', "\"")),
                }
            }
        }
        path
    }

    /// `runs/3/queue`
    pub fn in_request(&self) -> String {
        let mut path = self.parent.map(Path::in_request).unwrap_or_default();
        if !path.is_empty() {
            path.push('/');
        }
        match self.step {
            Step::Root => {}
            Step::Index(index) => path.push_str(&index.to_string()),
            Step::Key(name) => path.extend(name.chars().take(MAX_NAME_CHARS)),
        }
        path
    }
}
