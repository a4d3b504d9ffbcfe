//! A command line while its words are translated.

use std::collections::VecDeque;
use std::ffi::OsString;

use anyhow::anyhow;

use crate::exit::{self, Coded};

/// A command line with our options, and notes on options without effect.
#[derive(Debug, Default)]
pub(in crate::cli) struct Translated {
    pub(in crate::cli) args: Vec<OsString>,
    pub(in crate::cli) notes: Vec<String>,
}

/// The words of a command line that are not translated yet, and those that are.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) rest: VecDeque<OsString>,
    pub(super) done: Translated,
}

impl Line {
    pub(super) fn push(&mut self, word: impl Into<OsString>) {
        self.done.args.push(word.into());
    }

    /// Adds a note on an option without effect.
    pub(super) fn note(&mut self, note: &str) {
        self.done.notes.push(note.to_owned());
    }

    /// Takes the value of an option from the next word.
    pub(super) fn value(&mut self) -> OsString {
        self.rest.pop_front().unwrap_or_default()
    }

    /// Replaces an option with its value by ours.
    pub(super) fn rename(&mut self, ours: &str) {
        self.push(ours);
        let value = self.rest.pop_front();
        self.done.args.extend(value);
    }
}

/// True if a word was an option of another program, and is translated.
pub(super) type Handled = Result<bool, Coded>;

/// Returns the answer to an option that has no meaning here.
pub(super) fn answer(text: impl Into<String>) -> Coded {
    Coded::new(exit::USAGE, anyhow!(text.into()))
}
