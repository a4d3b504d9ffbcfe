//! Helpers for sentences.

mod escape;

use std::error::Error;

pub use escape::{
    Escaped, escape, escape_json, escape_lines, escape_name, escape_quoted, is_hostile,
};

/// Returns `error` and its causes in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Returns `sentence` with a capital first letter.
pub fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Caused(&'static str, Option<Box<Caused>>);

    impl fmt::Display for Caused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Caused {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_follow_their_error() {
        let cause = Caused("cannot open it", Some(Box::new(Caused("no such file", None))));
        assert_eq!(chain(&cause), "cannot open it: no such file");
        assert_eq!(chain(&Caused("that is all", None)), "that is all");
    }

    #[test]
    fn a_sentence_begins_with_a_capital() {
        assert_eq!(capitalised("élan is lost"), "Élan is lost");
        assert_eq!(capitalised(""), "");
    }
}
