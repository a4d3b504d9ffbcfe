//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

/// Returns the one's complement sum of `bytes` as big-endian words; an odd last byte is padded with
/// zero.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    // Eight bytes at a time: folding a sum of wider words gives the same sum (RFC 1071, section 2).
    let mut chunks = bytes.chunks_exact(8);
    let mut total: u128 = chunks
        .by_ref()
        .map(|chunk| u128::from(u64::from_be_bytes(chunk.try_into().unwrap_or_default())))
        .sum();
    for (at, byte) in chunks.remainder().iter().enumerate() {
        total += u128::from(*byte) << if at % 2 == 0 { 8 } else { 0 };
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Adds two one's complement sums.
pub(super) fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

/// Returns `sum` with the word `old` replaced by `new`.
pub(super) fn replace(sum: u16, old: u16, new: u16) -> u16 {
    add(add(sum, !old), new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_as_the_rfc_does() {
        // The example of RFC 1071, section 3.
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0xab]), 0xab00);
        assert_eq!(sum(&[0xff; 65_535]), 0xff00, "all ones but the padding");
    }

    #[test]
    fn an_update_is_the_sum_of_the_new_words() {
        let mut words = *b"a checksum that holds on to what it covers";
        let before = sum(&words);
        words[4..6].copy_from_slice(b"xy");
        let old = u16::from_be_bytes(*b"ec");
        assert_eq!(replace(before, old, u16::from_be_bytes(*b"xy")), sum(&words));
    }
}
