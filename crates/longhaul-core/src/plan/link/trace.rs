//! Files that a plan refers to: loss, rate and delay over time, samples of jitter.
//!
//! A plan that was built from options contains each file's content. A document contains the name,
//! the digest and the number of entries, so that it stays small and still identifies the file.

use std::io;
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

/// A function that reads a file of a plan: from the path to the text.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> io::Result<String>;

impl<T: Trace> TraceFile<T> {
    /// Creates a reference to the file at `file` without loading it.
    pub fn named(file: &str) -> Self {
        TraceFile { file: file.to_owned(), xxh3: None, entries: None, content: None }
    }

    /// Returns the content; `None` before [`TraceFile::load`].
    pub fn content(&self) -> Option<&Arc<T>> {
        self.content.as_ref()
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

    #[test]
    fn a_document_contains_the_name_and_digest_of_a_file() {
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
        assert!(error.contains("loss-trace loss.txt"), "{error}");
    }
}
