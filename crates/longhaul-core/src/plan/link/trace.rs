//! Files that a plan refers to: loss, rate and delay over time, samples of jitter.
//!
//! A plan that was built from options contains each file's content. A document contains the name,
//! the digest and the number of entries, so that it stays small and still identifies the file.

use std::hash::Hasher as _;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{LinkPlanError, TraceError};

/// The content of a trace file.
pub trait Trace: Sized {
    /// Parses the text of the file.
    ///
    /// # Errors
    /// The first line that cannot be parsed, or the file has no entries.
    fn parse(text: &str) -> Result<Self, TraceError>;

    /// Reads the file to its end. By default it is at most 64 MiB of text.
    ///
    /// # Errors
    /// The file cannot be read, and as for [`Trace::parse`].
    fn read(source: &mut dyn BufRead) -> Result<Self, TraceError> {
        Self::parse(&whole(source).map_err(TraceError::Read)?)
    }

    /// Returns the number of entries.
    fn entries(&self) -> u64;
}

/// The name of a file, with its content after loading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct TraceFile<T> {
    /// The path as the user gave it.
    pub file: String,
    /// The XXH3 digest of its bytes (64 bits, in hexadecimal).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xxh3: Option<String>,
    /// The number of entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    #[serde(skip)]
    content: Option<Arc<T>>,
}

/// A function that opens a file of a plan by its path.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> io::Result<Box<dyn Read>>;

/// A [`ReadFile`] for plans that refer to no file: it finds none.
pub const NO_FILES: ReadFile<'static> = &|_| Err(io::ErrorKind::NotFound.into());

/// Reads a text of bounded length.
fn whole(source: &mut dyn BufRead) -> io::Result<String> {
    /// Published traces have a few MiB. The limit stops a device without an end.
    const LARGEST: u64 = 64 << 20;
    let mut text = String::new();
    let read = source.take(LARGEST + 1).read_to_string(&mut text)?;
    if read as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 64 MiB"));
    }
    Ok(text)
}

impl<T: Trace> TraceFile<T> {
    /// Creates a reference to the file at `file` without loading it.
    pub fn named(file: &str) -> Self {
        TraceFile { file: file.to_owned(), xxh3: None, entries: None, content: None }
    }

    /// Returns the content; `None` before [`TraceFile::load`].
    pub fn content(&self) -> Option<&Arc<T>> {
        self.content.as_ref()
    }

    /// Takes over the content of the same file, unless another digest is wanted.
    pub(super) fn share(&mut self, loaded: &TraceFile<T>) {
        let is_wanted = self.xxh3.is_none() || self.xxh3 == loaded.xxh3;
        if self.content.is_none() && self.file == loaded.file && is_wanted {
            self.xxh3.clone_from(&loaded.xxh3);
            (self.entries, self.content) = (loaded.entries, loaded.content.clone());
        }
    }

    /// Loads the content unless it is loaded.
    ///
    /// # Errors
    /// The file cannot be read or parsed, or differs from the file that the document names.
    pub fn load(&mut self, option: &'static str, read: ReadFile) -> Result<(), LinkPlanError> {
        if self.content.is_some() {
            return Ok(());
        }
        self.try_load(read).map_err(|cause| LinkPlanError::Trace {
            option,
            file: self.file.clone(),
            cause: Arc::new(cause),
        })
    }

    fn try_load(&mut self, read: ReadFile) -> Result<(), TraceError> {
        let source = read(&self.file).map_err(TraceError::Read)?;
        let mut source = Digested { source, digest: twox_hash::XxHash3_64::new() };
        let content = T::read(&mut BufReader::with_capacity(1 << 16, &mut source))?;
        let found = format!("{:016x}", source.digest.finish());
        if let Some(wanted) = self.xxh3.as_ref().filter(|wanted| **wanted != found) {
            return Err(TraceError::Changed { wanted: wanted.clone(), found });
        }
        self.xxh3 = Some(found);
        self.entries = Some(content.entries());
        self.content = Some(Arc::new(content));
        Ok(())
    }

    pub(super) fn check(&self, option: &'static str) -> Result<(), LinkPlanError> {
        match self.content {
            Some(_) => Ok(()),
            None => Err(LinkPlanError::NotLoaded { option, file: self.file.clone() }),
        }
    }
}

/// A file with the digest of the bytes that were read.
struct Digested {
    source: Box<dyn Read>,
    digest: twox_hash::XxHash3_64,
}

impl Read for Digested {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.digest.write(&buffer[..length]);
        Ok(length)
    }
}

/// Returns the non-empty, non-comment lines with their numbers from 1.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::super::loss::LossTrace;
    use super::*;

    fn text(text: &'static str) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(text.as_bytes()))
    }

    #[test]
    fn a_document_contains_the_name_and_digest_of_a_file() {
        let read = |_: &str| text("# one in four\n01 00\n");
        let mut file = TraceFile::<LossTrace>::named("loss.txt");
        assert!(file.check("loss-trace").is_err());
        file.load("loss-trace", &read).unwrap();
        let lost = file.content().unwrap().lost().to_string();
        assert_eq!((lost.as_str(), file.entries), ("2/4", Some(4)));
        let json = serde_json::to_string(&file).unwrap();
        assert!(json.len() < 80, "{json}");
        let mut again: TraceFile<LossTrace> = serde_json::from_str(&json).unwrap();
        again.load("loss-trace", &read).unwrap();
        assert_eq!(again, file);
    }

    #[test]
    fn another_content_under_the_same_name_is_refused() {
        let mut file = TraceFile::<LossTrace>::named("loss.txt");
        file.load("loss-trace", &|_| text("01")).unwrap();
        let json = serde_json::to_string(&file).unwrap();
        let mut again: TraceFile<LossTrace> = serde_json::from_str(&json).unwrap();
        let error = again.load("loss-trace", &|_| text("10")).unwrap_err().to_string();
        assert!(error.contains("loss-trace loss.txt"), "{error}");
    }
}
