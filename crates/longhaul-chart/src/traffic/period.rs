//! The four periods that MRTG draws, and the units of traffic.

use longhaul_core::units::Rate;

/// A period of a graph. Each has 400 bins, as in MRTG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Period {
    /// 33 hours and 20 minutes in bins of 5 minutes.
    Day,
    /// Eight days and eight hours in bins of 30 minutes.
    Week,
    /// 33 days and 8 hours in bins of two hours.
    Month,
    /// 400 days in bins of one day.
    Year,
}

impl Period {
    /// All periods from the shortest to the longest.
    pub const ALL: [Period; 4] = [Period::Day, Period::Week, Period::Month, Period::Year];

    /// The number of bins of a period.
    pub const BINS: i64 = 400;

    /// Returns the length of a bin in seconds.
    pub const fn step_seconds(self) -> i64 {
        match self {
            Period::Day => 300,
            Period::Week => 1800,
            Period::Month => 7200,
            Period::Year => 86_400,
        }
    }

    /// Returns the window in Unix seconds that ends with the bin of `now`.
    pub const fn window(self, now: i64) -> (i64, i64) {
        let step = self.step_seconds();
        let end = (now.div_euclid(step) + 1) * step;
        (end - step * Self::BINS, end)
    }

    /// Returns the name that MRTG uses, such as "Daily".
    pub const fn name(self) -> &'static str {
        match self {
            Period::Day => "Daily",
            Period::Week => "Weekly",
            Period::Month => "Monthly",
            Period::Year => "Yearly",
        }
    }
}

/// The unit of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficUnit {
    /// Bits per second.
    Bits,
    /// Packets per second.
    Packets,
}

impl TrafficUnit {
    /// Returns a divisor and the name of the unit that it gives, for axes up to `greatest`.
    pub fn scaled(self, greatest: f64) -> (f64, String) {
        let (divisor, prefix) = match greatest {
            v if v >= 1e12 => (1e12, "T"),
            v if v >= 1e9 => (1e9, "G"),
            v if v >= 1e6 => (1e6, "M"),
            v if v >= 1e3 => (1e3, "k"),
            _ => (1.0, ""),
        };
        let name = match self {
            TrafficUnit::Bits => format!("{prefix}b/s"),
            TrafficUnit::Packets if prefix.is_empty() => "packets/s".to_owned(),
            TrafficUnit::Packets => format!("{prefix} packets/s"),
        };
        (divisor, name)
    }

    /// Returns `value` with three significant digits and a unit.
    pub fn text(self, value: f64) -> String {
        let text = Rate::from_bps(value.max(0.0).round() as u64).to_string();
        match self {
            TrafficUnit::Bits => text,
            TrafficUnit::Packets => text.trim_end_matches("b/s").to_owned() + "p/s",
        }
    }
}

/// Returns a span in the largest unit that divides it: "5 min", "2 h", "1 d", "0.1 s".
pub fn span_words(seconds: f64) -> String {
    let units = [(86_400.0, "d"), (3600.0, "h"), (60.0, "min")];
    let whole = |(length, _): &(f64, &str)| seconds >= *length && seconds % length == 0.0;
    match units.into_iter().find(whole) {
        Some((length, unit)) => format!("{} {unit}", seconds / length),
        None => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_with_the_bin_of_now() {
        assert_eq!(Period::Day.window(299), (300 - 120_000, 300));
        assert_eq!(Period::Day.window(300).1, 600);
        assert_eq!(Period::Year.window(-1).1, 0);
    }

    #[test]
    fn units_have_decimal_prefixes() {
        assert_eq!(TrafficUnit::Bits.scaled(9.4e9), (1e9, "Gb/s".into()));
        assert_eq!(TrafficUnit::Packets.scaled(20.0), (1.0, "packets/s".into()));
        assert_eq!(TrafficUnit::Bits.text(9.41e9), "9.41 Gb/s");
        assert_eq!(TrafficUnit::Packets.text(12_345.0), "12.3 kp/s");
        let spans = [0.1, 1.0, 300.0, 7200.0, 86_400.0].map(span_words);
        assert_eq!(spans, ["0.1 s", "1 s", "5 min", "2 h", "1 d"]);
    }
}
