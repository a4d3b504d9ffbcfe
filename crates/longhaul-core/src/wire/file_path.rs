//! File paths on the wire.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::escape_name;

/// A path in a file system: any bytes except NUL.
///
/// In JSON it is text with `%XX` for bytes that are not UTF-8, for control and format characters
/// and for `%`. Every name can be represented, and most stay readable.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(Vec<u8>);

impl FilePath {
    /// Creates a path from bytes; `None` if they contain NUL.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (!bytes.contains(&0)).then_some(FilePath(bytes))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether this is a plain relative path: it has no empty, `.` or `..` component and no
    /// leading or trailing slash. A peer may create only such paths.
    pub fn is_plain_relative(&self) -> bool {
        self.0
            .split(|byte| *byte == b'/')
            .all(|part| !matches!(part, b"" | b"." | b"..") && part.len() <= 255)
    }

    fn escaped(&self) -> String {
        escape_name(&self.0)
    }

    fn unescaped(text: &str) -> Option<Self> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let [first, tail @ ..] = rest {
            if *first == b'%' {
                let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
                // from_str_radix would accept a sign.
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &tail[2..];
            } else {
                bytes.push(*first);
                rest = tail;
            }
        }
        FilePath::new(bytes)
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.escaped())
    }
}

impl fmt::Display for FilePath {
    /// Formats the path for messages. Characters that could control a terminal are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.escaped())
    }
}

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.escaped())
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        FilePath::unescaped(&text).ok_or_else(|| serde::de::Error::custom("not an escaped path"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stays_legible_and_harmless() {
        let path = FilePath::new(b"caf\xc3\xa9/100%\x1b[31m\xff".to_vec()).unwrap();
        assert_eq!(path.to_string(), "caf\u{e9}/100%25%1B[31m%FF");
    }

    #[test]
    fn knows_the_paths_that_a_peer_may_create() {
        for good in ["a", "a/b", ".hidden", "a..b"] {
            assert!(FilePath::new(good).unwrap().is_plain_relative(), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a/."] {
            assert!(!FilePath::new(bad).unwrap().is_plain_relative(), "{bad}");
        }
        assert!(!FilePath::new("x".repeat(256)).unwrap().is_plain_relative());
    }

    #[test]
    fn refuses_bad_escapes() {
        for text in ["\"%\"", "\"%4\"", "\"%+1\"", "\"%zz\"", "\"%00\"", "\"%\u{e9}\""] {
            assert!(serde_json::from_str::<FilePath>(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(bytes in proptest::collection::vec(1_u8.., 0..64)) {
            let path = FilePath::new(bytes).unwrap();
            let text = serde_json::to_string(&path).unwrap();
            prop_assert_eq!(serde_json::from_str::<FilePath>(&text).unwrap(), path);
        }
    }
}
