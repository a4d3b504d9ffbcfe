//! Pseudo-random payload.

/// Fills `bytes` with pseudo-random data, which neither a path nor a file system compresses; the
/// same each time.
pub(crate) fn noise(bytes: &mut [u8]) {
    blake3::Hasher::new().update(b"longhaul").finalize_xof().fill(bytes);
}

#[cfg(test)]
mod tests {
    #[test]
    fn noise_does_not_compress() {
        let mut bytes = vec![0; 102_400];
        super::noise(&mut bytes);
        let mut seen = [0u32; 256];
        bytes.iter().for_each(|&byte| seen[usize::from(byte)] += 1);
        assert!(seen.iter().all(|count| (250..550).contains(count)), "{seen:?}");
    }
}
