//! Values separated by commas (RFC 4180), or by semicolons or tabs if the header is. The first line names the columns; an empty
//! value is none.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::{Map, Value};

use super::{MAX_ROW_BYTES, Row, Sender, Trouble, shown, unreadable};

/// Reads to the end, or until nobody listens.
pub fn read(path: &Path, to: &Sender) {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return drop(to.blocking_send(Err(unreadable(path, &error)))),
    };
    let mut records = Records { source: BufReader::new(file), name: shown(path), line: 0, separator: b',' };
    let header = match records.header() {
        Ok(header) => header,
        Err(trouble) => return drop(to.blocking_send(Err(trouble))),
    };
    while let Some(read) = records.row(&header) {
        let ends = matches!(read, Err(Trouble::Source(_)));
        if to.blocking_send(read).is_err() || ends {
            return;
        }
    }
}

struct Records<R> {
    source: R,
    name: String,
    /// Lines that were read.
    line: u64,
    separator: u8,
}

/// One record: where it began, and its values.
type Record = Result<(u64, Vec<String>), Trouble>;

impl<R: BufRead> Records<R> {
    fn header(&mut self) -> Result<Vec<String>, Trouble> {
        let mut first = match self.text() {
            Some(first) => first?,
            None => return Err(self.trouble(1, "the file is empty: its first line names the columns")),
        };
        first.drain(..first.len() - crate::outcome::without_bom(&first).len());
        self.separator = [b',', b';', b'\t'].into_iter().find(|it| first.contains(it)).unwrap_or(b',');
        let names = self.split(first, 1)?;
        let names: Vec<String> = names.into_iter().map(|name| name.trim().to_owned()).collect();
        for (at, name) in names.iter().enumerate() {
            if name.is_empty() {
                return Err(self.trouble(1, &format!("column {} has no name", at + 1)));
            }
            if names[..at].contains(name) {
                return Err(self.trouble(1, &format!("the column {name:?} is there twice")));
            }
        }
        Ok(names)
    }

    fn row(&mut self, header: &[String]) -> Option<Result<Row, Trouble>> {
        let (line, values) = match self.record()? {
            Ok(record) => record,
            Err(trouble) => return Some(Err(trouble)),
        };
        let at = format!("{}:{line}", self.name);
        if values.len() != header.len() {
            let message = format!("{at}: {} values, and the header has {}", values.len(), header.len());
            return Some(Err(Trouble::Row(message)));
        }
        let value = |text: String| if text.is_empty() { Value::Null } else { Value::String(text) };
        let members: Map<String, Value> = header.iter().cloned().zip(values.into_iter().map(value)).collect();
        Some(Ok(Row { at, members }))
    }

    /// The next that is not an empty line.
    fn record(&mut self) -> Option<Record> {
        loop {
            let text = match self.text()? {
                Ok(text) => text,
                Err(trouble) => return Some(Err(trouble)),
            };
            if text.trim_ascii().is_empty() {
                continue;
            }
            let line = self.line;
            return Some(self.split(text, line).map(|values| (line, values)));
        }
    }

    /// One line with its end.
    fn text(&mut self) -> Option<Result<Vec<u8>, Trouble>> {
        let mut text = Vec::new();
        let mut limited = std::io::Read::take(&mut self.source, MAX_ROW_BYTES as u64 + 1);
        match limited.read_until(b'\n', &mut text) {
            Ok(0) => return None,
            Ok(_) => self.line += 1,
            Err(error) => {
                return Some(Err(self.trouble(self.line + 1, &format!("it cannot be read: {error}"))));
            }
        }
        Some(if text.len() > MAX_ROW_BYTES { Err(self.too_long()) } else { Ok(text) })
    }

    /// A record goes on over the ends of lines that stand between quotes.
    fn split(&mut self, text: Vec<u8>, line: u64) -> Result<Vec<String>, Trouble> {
        let mut text = text;
        let mut cells = Cells { separator: self.separator, ..Cells::default() };
        loop {
            cells.read(&text).map_err(|problem| Trouble::Row(format!("{}:{line}: {problem}", self.name)))?;
            if !cells.is_quoted {
                break;
            }
            if cells.bytes > MAX_ROW_BYTES {
                return Err(self.too_long());
            }
            text = match self.text() {
                Some(more) => more?,
                None => return Err(self.trouble(line, "a quote is never closed")),
            };
        }
        cells.done().map_err(|_| Trouble::Row(format!("{}:{line}: this is not UTF-8", self.name)))
    }

    fn too_long(&self) -> Trouble {
        self.trouble(self.line, &format!("the row is longer than {MAX_ROW_BYTES} bytes"))
    }

    fn trouble(&self, line: u64, message: &str) -> Trouble {
        Trouble::Source(format!("{}:{line}: {message}", self.name))
    }
}

/// The values of a record, read line by line.
#[derive(Default)]
struct Cells {
    separator: u8,
    done: Vec<Vec<u8>>,
    cell: Vec<u8>,
    /// Within quotes.
    is_quoted: bool,
    /// Behind the quotes of a value: only a separator may follow.
    is_closed: bool,
    bytes: usize,
}

impl Cells {
    fn read(&mut self, text: &[u8]) -> Result<(), &'static str> {
        self.bytes += text.len();
        let mut bytes = text.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' if self.is_quoted => match bytes.peek() {
                    Some(b'"') => {
                        bytes.next();
                        self.cell.push(b'"');
                    }
                    _ => (self.is_quoted, self.is_closed) = (false, true),
                },
                byte if self.is_quoted => self.cell.push(byte),
                b'\n' => {}
                b'\r' if bytes.peek() == Some(&b'\n') => {}
                byte if byte == self.separator => self.next(),
                b'"' if self.cell.is_empty() && !self.is_closed => self.is_quoted = true,
                b'"' => {
                    return Err("a quote stands within a value: double it, and put quotes around the value");
                }
                _ if self.is_closed => return Err("a value goes on behind its closing quote"),
                byte => self.cell.push(byte),
            }
        }
        Ok(())
    }

    fn next(&mut self) {
        self.done.push(std::mem::take(&mut self.cell));
        self.is_closed = false;
    }

    fn done(mut self) -> Result<Vec<String>, std::string::FromUtf8Error> {
        self.next();
        self.done.into_iter().map(String::from_utf8).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(text: &[u8]) -> (Vec<(String, Value)>, Vec<String>) {
        let mut records = Records { source: text, name: "p.csv".to_owned(), line: 0, separator: b',' };
        let (mut rows, mut troubles) = (Vec::new(), Vec::new());
        let header = match records.header() {
            Ok(header) => header,
            Err(Trouble::Row(words) | Trouble::Source(words)) => return (rows, vec![words]),
        };
        while let Some(read) = records.row(&header) {
            match read {
                Ok(row) => rows.push((row.at, Value::Object(row.members))),
                Err(Trouble::Row(words)) => troubles.push(words),
                Err(Trouble::Source(words)) => {
                    troubles.push(words);
                    break;
                }
            }
        }
        (rows, troubles)
    }

    #[test]
    fn files_of_all_kinds_are_read() {
        let sku = |at: &str, id: &str, name: &str| (at.to_owned(), json!({ "id": id, "name": name }));
        for (text, expected) in [
            (&b"id,name\n1,hat\n2,cap\n"[..], vec![sku("p.csv:2", "1", "hat"), sku("p.csv:3", "2", "cap")]),
            (b"\xef\xbb\xbfid;name\r\n1;hat\r\n", vec![sku("p.csv:2", "1", "hat")]),
            (b"id\tname\n1\thats, caps\n", vec![sku("p.csv:2", "1", "hats, caps")]),
            (b"id,name\n\n1,\"a \"\"big\"\" hat\"\n", vec![sku("p.csv:3", "1", "a \"big\" hat")]),
            (
                b"id,name\n1,\"two\nlines, one value\"\n2,x",
                vec![sku("p.csv:2", "1", "two\nlines, one value"), sku("p.csv:4", "2", "x")],
            ),
            (b"id , name\n007,\xd0\xb9\n", vec![sku("p.csv:2", "007", "й")]),
        ] {
            assert_eq!(rows(text), (expected, Vec::new()), "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(rows(b"id,name\n1,\n").0, [("p.csv:2".to_owned(), json!({"id": "1", "name": null}))]);
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_line() {
        for (text, words, left) in [
            (&b""[..], "p.csv:1: the file is empty", 0),
            (b"id,id\n", "p.csv:1: the column \"id\" is there twice", 0),
            (b"id,,x\n", "p.csv:1: column 2 has no name", 0),
            (b"id,name\n1\n2,b\n", "p.csv:2: 1 values, and the header has 2", 1),
            (b"id,name\n1,a\"b\n2,b\n", "p.csv:2: a quote stands within", 1),
            (b"id,name\n1,\"a\"b\n2,b\n", "p.csv:2: a value goes on", 1),
            (b"id,name\n1,\"a\n2,b\n", "p.csv:2: a quote is never closed", 0),
            (b"id,name\n1,\xff\n2,b\n", "p.csv:2: this is not UTF-8", 1),
        ] {
            let (rows, troubles) = rows(text);
            assert!(troubles.len() == 1 && troubles[0].starts_with(words), "{words}: {troubles:?}");
            assert_eq!(rows.len(), left, "{words}");
        }
        let long = [&b"id,name\n1,"[..], &vec![b'x'; 70_000], b"\n"].concat();
        assert!(rows(&long).1[0].contains("longer than 65536 bytes"));
    }
}
