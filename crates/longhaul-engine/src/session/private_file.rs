//! Files that say who may do what: the identity, `authorized_keys` and `known_hosts`.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::error::{EngineError, Result};

/// The text of a file; empty when there is none.
pub(super) fn read_if_present(path: PathBuf) -> Result<String> {
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(EngineError::file("read", path)(error)),
    }
}
