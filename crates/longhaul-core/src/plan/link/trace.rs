//! Files that a plan refers to: loss, rate and delay over time, samples of jitter.
//!
//! A plan that was made from options holds each file's content; a document of it holds the name,
//! the digest and the number of entries, so that it stays small and still says what was used.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::LinkPlanError;

/// What a file can hold.
pub trait Trace: Sized {
    /// Reads the file's text.
    ///
    /// # Errors
    /// The first line that cannot be understood, or that there is none.
    fn parse(text: &str) -> Result<Self, TraceError>;

    /// How many entries it has.
    fn entries(&self) -> u64;
}

/// Why a file is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It could not be read.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// It has no entry.
    #[error("has no entry")]
    Empty,
    /// A line that cannot be understood.
    #[error("line {line}: expected {expected}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// Nothing would ever pass.
    #[error("{0}")]
    Stuck(&'static str),
    /// It is not the file that the document was made with.
    #[error("has changed: its XXH3 digest is {found}, and the plan was made with {wanted}")]
    Changed {
        /// The plan's.
        wanted: String,
        /// The file's.
        found: String,
    },
}

/// A file by name, and its content once it was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "", deny_unknown_fields)]
pub struct TraceFile<T> {
    /// Its path, as the user gave it.
    pub file: String,
    /// XXH3 of its bytes (64 bits, in hexadecimal).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xxh3: Option<String>,
    /// How many entries it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    #[serde(skip)]
    content: Option<Arc<T>>,
}

/// How a plan's files are read: the path to the text.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> io::Result<String>;

impl<T: Trace> TraceFile<T> {
    /// The file at `file`, not loaded yet.
    pub fn named(file: &str) -> Self {
        TraceFile { file: file.to_owned(), xxh3: None, entries: None, content: None }
    }

    /// The content; `None` before [`TraceFile::load`].
    pub fn content(&self) -> Option<&Arc<T>> {
        self.content.as_ref()
    }

    /// Reads the content; nothing happens if it is there.
    ///
    /// # Errors
    /// The file cannot be read or understood, or is not the one that the document was made with.
    pub fn load(&mut self, option: &'static str, read: ReadFile) -> Result<(), LinkPlanError> {
        if self.content.is_some() {
            return Ok(());
        }
        self.try_load(read).map_err(|source| LinkPlanError::Trace {
            option,
            file: self.file.clone(),
            source: Arc::new(source),
        })
    }

    fn try_load(&mut self, read: ReadFile) -> Result<(), TraceError> {
        let text = read(&self.file).map_err(TraceError::Read)?;
        let content = T::parse(&text)?;
        let found = format!("{:016x}", twox_hash::XxHash3_64::oneshot(text.as_bytes()));
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

/// The lines that say something, with their numbers from 1.
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

    #[test]
    fn a_document_keeps_the_name_and_the_digest_and_not_the_content() {
        let read = |_: &str| Ok("# one in four\n01 00\n".to_owned());
        let mut file = TraceFile::<LossTrace>::named("loss.txt");
        assert!(file.check("loss-trace").is_err());
        file.load("loss-trace", &read).unwrap();
        let lost = file.content().unwrap().lost().to_string();
        assert_eq!((lost.as_str(), file.entries), ("2/4", Some(4)));
        let text = serde_json::to_string(&file).unwrap();
        assert!(text.len() < 80, "{text}");
        let mut again: TraceFile<LossTrace> = serde_json::from_str(&text).unwrap();
        again.load("loss-trace", &read).unwrap();
        assert_eq!(again, file);
    }

    #[test]
    fn another_content_under_the_same_name_is_refused() {
        let mut file = TraceFile::<LossTrace>::named("loss.txt");
        file.load("loss-trace", &|_| Ok("01".to_owned())).unwrap();
        let text = serde_json::to_string(&file).unwrap();
        let mut again: TraceFile<LossTrace> = serde_json::from_str(&text).unwrap();
        let error = again.load("loss-trace", &|_| Ok("10".to_owned())).unwrap_err().to_string();
        assert!(error.contains("--loss-trace loss.txt"), "{error}");
    }
}
