//! Compressed JSON documents in columns of bytes.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde_json::Value as Json;

use crate::store::StoreError;

/// The maximum number of bytes of a document after decompression.
const LONGEST: u64 = 64 << 20;

const MALFORMED: StoreError = StoreError::Malformed { what: "document" };

/// Returns a document as compressed bytes.
///
/// # Errors
/// The document cannot be converted.
pub(super) fn pack_json(document: &Json) -> Result<Vec<u8>, StoreError> {
    let text = serde_json::to_vec(document).map_err(|_| MALFORMED)?;
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&text).and_then(|()| packed.finish()).map_err(|_| MALFORMED)
}

/// Returns the document of compressed bytes.
///
/// # Errors
/// The bytes are damaged or longer than a document can be.
pub(super) fn unpack_json(packed: &[u8]) -> Result<Json, StoreError> {
    let mut text = Vec::new();
    let read = DeflateDecoder::new(packed).take(LONGEST + 1).read_to_end(&mut text);
    if read.is_err() || text.len() as u64 > LONGEST {
        return Err(MALFORMED);
    }
    serde_json::from_slice(&text).map_err(|_| MALFORMED)
}
