//! The packed form of rows of integers: the difference from the row before, as variable-length
//! numbers.

/// Packed rows or buckets are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("packed samples are damaged")]
pub struct Malformed;

/// Returns rows of `width` numbers as bytes.
pub fn pack(width: usize, rows: &[Vec<i64>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rows.len() * width * 2);
    let mut last = vec![0i64; width];
    for row in rows {
        for (value, last) in row.iter().zip(&mut last) {
            let difference = value.wrapping_sub(*last);
            *last = *value;
            // Zigzag: small negative numbers are short, too.
            let mut rest = ((difference << 1) ^ (difference >> 63)).cast_unsigned();
            while rest >= 0x80 {
                bytes.push((rest & 0x7f) as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
        }
    }
    bytes
}

/// Returns the rows of `width` numbers in `bytes`.
///
/// # Errors
/// The bytes end within a row or a number is too long.
pub fn unpack(width: usize, bytes: &[u8]) -> Result<Vec<Vec<i64>>, Malformed> {
    let mut rows = Vec::new();
    let mut last = vec![0i64; width];
    let mut rest = bytes.iter();
    while rest.len() > 0 {
        for value in &mut last {
            let number = number(&mut rest)?;
            let difference = (number >> 1).cast_signed() ^ -((number & 1).cast_signed());
            *value = value.wrapping_add(difference);
        }
        rows.push(last.clone());
    }
    Ok(rows)
}

fn number(bytes: &mut std::slice::Iter<'_, u8>) -> Result<u64, Malformed> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.next().ok_or(Malformed)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_rows_are_small_and_return_unchanged() {
        let rows: Vec<Vec<i64>> = (0..60)
            .map(|i| vec![1_700_000_000_000 + i * 1000, 1000, 125_000_000 + i, 0, -i])
            .collect();
        let packed = pack(5, &rows);
        assert!(packed.len() < 60 * 7, "{} bytes", packed.len());
        assert_eq!(unpack(5, &packed), Ok(rows));
        let extreme = vec![vec![i64::MIN, i64::MAX], vec![i64::MAX, i64::MIN]];
        assert_eq!(unpack(2, &pack(2, &extreme)), Ok(extreme));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let packed = pack(2, &[vec![1, 300]]);
        assert_eq!(unpack(2, &packed[..2]), Err(Malformed));
        assert_eq!(unpack(1, &[0xff; 11]), Err(Malformed));
    }
}
