//! The messages of Prometheus remote write 1.0 in the encoding of Protocol Buffers.
//!
//! `WriteRequest { 1: repeated TimeSeries }`, `TimeSeries { 1: repeated Label, 2: repeated Sample }`,
//! `Label { 1: string name, 2: string value }`, `Sample { 1: double value, 2: int64 timestamp_ms }`.

/// A series with some of its samples.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimeSeries {
    /// The labels, in the order of their names. The name of the metric is the label `__name__`.
    pub(super) labels: Vec<(&'static str, String)>,
    /// The times in ms since 1970 with the values, the earliest first.
    pub(super) samples: Vec<(i64, f64)>,
}

/// The wire types.
const DOUBLE: u8 = 1;
const BYTES: u8 = 2;

/// Returns the bytes of a write request.
pub(super) fn write_request(series: &[TimeSeries]) -> Vec<u8> {
    let mut request = Vec::new();
    for one in series {
        let mut bytes = Vec::new();
        for (name, value) in &one.labels {
            let mut label = Vec::new();
            field(&mut label, 1, name.as_bytes());
            field(&mut label, 2, value.as_bytes());
            field(&mut bytes, 1, &label);
        }
        for (at_ms, value) in &one.samples {
            let mut sample = vec![(1 << 3) | DOUBLE];
            sample.extend(value.to_le_bytes());
            sample.push(2 << 3);
            varint(&mut sample, at_ms.cast_unsigned());
            field(&mut bytes, 2, &sample);
        }
        field(&mut request, 1, &bytes);
    }
    request
}

fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push((number << 3) | BYTES);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_protocol_buffers() {
        let series = TimeSeries { labels: vec![("a", "b".to_owned())], samples: vec![(300, 1.0)] };
        // Written by hand from the specification of the encoding.
        let label = [0x0a, 6, 0x0a, 1, b'a', 0x12, 1, b'b'];
        let sample = [0x12, 12, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0xac, 0x02];
        let expected = [&[0x0a, 22][..], &label, &sample].concat();
        assert_eq!(write_request(&[series]), expected);
        let mut negative = Vec::new();
        varint(&mut negative, (-1i64).cast_unsigned());
        assert_eq!(negative.len(), 10);
    }
}
