//! The quantities of iperf3's text: four significant characters and a unit.

/// The unit of rates in text (`-f`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Bits, with the prefix that fits.
    #[default]
    Adaptive,
    /// Bits with a fixed prefix: K, M, G or T as 1 to 4.
    Bits(u32),
    /// Bytes with a fixed prefix.
    Bytes(u32),
}

const PREFIXES: [&str; 5] = ["", "K", "M", "G", "T"];

impl Format {
    /// Returns the format of a letter of `-f`.
    pub fn of(letter: char) -> Option<Self> {
        let prefix = |letter| "kmgt".find(letter).map(|at| at as u32 + 1);
        match letter {
            'k' | 'm' | 'g' | 't' => prefix(letter).map(Format::Bits),
            'K' | 'M' | 'G' | 'T' => prefix(letter.to_ascii_lowercase()).map(Format::Bytes),
            _ => None,
        }
    }
}

/// Returns a number of bytes, with a prefix of 1024.
pub(super) fn bytes(count: f64) -> String {
    scaled(count, 1024.0, None, "Byte")
}

/// Returns a rate of `bytes` per second without the time.
pub(super) fn rate(bytes: f64, format: Format) -> String {
    match format {
        Format::Adaptive => scaled(bytes * 8.0, 1000.0, None, "bit"),
        Format::Bits(prefix) => scaled(bytes * 8.0, 1000.0, Some(prefix), "bit"),
        Format::Bytes(prefix) => scaled(bytes, 1024.0, Some(prefix), "Byte"),
    }
}

fn scaled(mut value: f64, base: f64, prefix: Option<u32>, unit: &str) -> String {
    let mut found = 0;
    let more = |value: f64, found: u32| prefix.map_or(value >= base, |wanted| found < wanted);
    while found < 4 && more(value, found) {
        value /= base;
        found += 1;
    }
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:4.digits$} {}{unit}s", PREFIXES[found as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_four_characters() {
        assert_eq!(bytes(1_181_116_006.0), "1.10 GBytes");
        assert_eq!(bytes(0.0), "0.00 Bytes");
        assert_eq!(bytes(104_857_600.0), " 100 MBytes");
        assert_eq!(rate(1_173_750_000.0, Format::Adaptive), "9.39 Gbits");
        assert_eq!(rate(62_500_000.0, Format::Adaptive), " 500 Mbits");
        assert_eq!(rate(62_500_000.0, Format::of('g').unwrap()), "0.50 Gbits");
        assert_eq!(rate(1_048_576.0, Format::of('M').unwrap()), "1.00 MBytes");
        assert_eq!(Format::of('x'), None);
    }
}
