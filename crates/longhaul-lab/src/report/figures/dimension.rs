//! The dimensions that a plan can vary.

use longhaul_chart::{Axis, Scale, plain};

/// A quantity that a plan can vary and a figure can have on its x axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dimension {
    /// Round-trip time in ms, for paths without a stated length.
    Rtt,
    /// Length in statute miles of fiber.
    Miles,
    /// Rate of the link in Gb/s.
    Rate,
    /// Share of lost segments.
    Loss,
    /// Share of corrupted segments.
    Corruption,
    /// Bytes per packet, the MTU of the link.
    Mtu,
    /// Rate of the cross traffic in the link's queue in Gb/s.
    Cross,
    /// Number of TCP flows that share the path.
    Beside,
    /// Bytes per file.
    Size,
    /// Number of parallel streams.
    Streams,
    /// Window per stream in bytes.
    Window,
    /// Bytes per write to the socket.
    Message,
    /// Number of simultaneous clients.
    Clients,
    /// Number of parallel links.
    Links,
}

impl Dimension {
    pub(super) const COUNT: usize = 14;
    /// All dimensions in the order of figures.
    pub(super) const ALL: [Dimension; Self::COUNT] = [
        Dimension::Rtt,
        Dimension::Size,
        Dimension::Loss,
        Dimension::Corruption,
        Dimension::Mtu,
        Dimension::Links,
        Dimension::Cross,
        Dimension::Beside,
        Dimension::Miles,
        Dimension::Rate,
        Dimension::Streams,
        Dimension::Window,
        Dimension::Message,
        Dimension::Clients,
    ];

    /// The dimensions that are settings of an entry, not properties of the path or the work.
    pub(super) const SETTINGS: [Dimension; 5] = [
        Dimension::Streams,
        Dimension::Window,
        Dimension::Message,
        Dimension::Clients,
        Dimension::Beside,
    ];

    /// Returns the name in a heading.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Dimension::Rtt => "round-trip time",
            Dimension::Miles => "distance",
            Dimension::Rate => "the link's rate",
            Dimension::Loss => "loss",
            Dimension::Corruption => "corruption",
            Dimension::Mtu => "frame size",
            Dimension::Cross => "cross traffic",
            Dimension::Beside => "number of TCP flows beside the tool",
            Dimension::Size => "file size",
            Dimension::Streams => "number of streams",
            Dimension::Window => "window",
            Dimension::Message => "message size",
            Dimension::Clients => "number of clients",
            Dimension::Links => "number of parallel links",
        }
    }

    /// Returns the name in a figure's file name.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Dimension::Rtt => "rtt",
            Dimension::Miles => "distance",
            Dimension::Rate => "rate",
            Dimension::Loss => "loss",
            Dimension::Corruption => "corruption",
            Dimension::Mtu => "mtu",
            Dimension::Cross => "cross",
            Dimension::Beside => "beside",
            Dimension::Size => "size",
            Dimension::Streams => "streams",
            Dimension::Window => "window",
            Dimension::Message => "message",
            Dimension::Clients => "clients",
            Dimension::Links => "links",
        }
    }

    /// Returns the label of the axis.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Dimension::Rtt => "Round-trip time, ms",
            Dimension::Miles => "Distance, miles of fiber",
            Dimension::Rate => "Rate of the link, Gb/s",
            Dimension::Loss => "Share of lost segments",
            Dimension::Corruption => "Share of corrupted segments",
            Dimension::Mtu => "MTU, bytes",
            Dimension::Cross => "Cross traffic, Gb/s",
            Dimension::Beside => "TCP flows beside the tool",
            Dimension::Size => "File size",
            Dimension::Streams => "Streams",
            Dimension::Window => "Window per stream",
            Dimension::Message => "Size of each write",
            Dimension::Clients => "Simultaneous clients",
            Dimension::Links => "Parallel links",
        }
    }

    /// Formats a value on the axis.
    pub(super) fn tick(self, value: f64) -> String {
        match self {
            Dimension::Size | Dimension::Window | Dimension::Message => bytes(value),
            Dimension::Loss | Dimension::Corruption if value == 0.0 => "0".to_owned(),
            Dimension::Loss | Dimension::Corruption => scientific(value),
            _ => plain((value * 1e3).round() / 1e3),
        }
    }

    /// Formats a value with its unit or noun.
    pub(super) fn named(self, value: f64) -> String {
        let text = self.tick(value);
        let many = |what: &str| format!("{text} {what}{}", if value == 1.0 { "" } else { "s" });
        match self {
            Dimension::Rtt => format!("{text} ms"),
            Dimension::Miles => many("mile"),
            Dimension::Rate => format!("{text} Gb/s"),
            Dimension::Loss if value == 0.0 => "no loss".to_owned(),
            Dimension::Loss => format!("loss {text}"),
            Dimension::Corruption if value == 0.0 => "no corruption".to_owned(),
            Dimension::Corruption => format!("corruption {text}"),
            Dimension::Mtu => format!("MTU {text}"),
            Dimension::Cross if value == 0.0 => "no cross traffic".to_owned(),
            Dimension::Cross => format!("cross traffic {text} Gb/s"),
            Dimension::Beside if value == 0.0 => "alone".to_owned(),
            Dimension::Beside => format!("beside {}", many("flow")),
            Dimension::Size => text,
            Dimension::Streams => many("stream"),
            Dimension::Window => format!("window {text}"),
            Dimension::Message => format!("message {text}"),
            Dimension::Clients => many("client"),
            Dimension::Links => many("link"),
        }
    }

    /// Creates an axis with a tick at each of `values`: linear from zero for time, distance and
    /// competing traffic, logarithmic for other dimensions, which plans vary by factors.
    pub(super) fn axis(self, values: &[f64]) -> Axis {
        let scale = match self {
            Dimension::Rtt | Dimension::Miles | Dimension::Cross | Dimension::Beside => {
                let to = values.iter().copied().fold(0.0, f64::max);
                Scale::Linear { to: if to > 0.0 { to } else { 1.0 } }
            }
            _ => Scale::steps_between(values),
        };
        let ticks = values.iter().map(|value| (*value, self.tick(*value))).collect();
        Axis { ticks, ..Axis::new(self.label(), scale) }
    }
}

/// Formats bytes with three digits, in the binary or decimal unit that represents the value more
/// exactly.
fn bytes(value: f64) -> String {
    let in_units = |units: [&str; 5], step: f64| {
        let power = (value.max(1.0).ln() / step.ln() + 1e-9).floor().min(4.0);
        let scaled = value / step.powf(power);
        let digits = 10_f64.powf(2.0 - scaled.max(1.0).log10().floor());
        let rounded = (scaled * digits).round() / digits;
        (format!("{} {}", plain(rounded), units[power as usize]), (rounded / scaled - 1.0).abs())
    };
    let (binary, binary_error) = in_units(["B", "KiB", "MiB", "GiB", "TiB"], 1024.0);
    let (decimal, decimal_error) = in_units(["B", "kB", "MB", "GB", "TB"], 1000.0);
    if decimal_error < binary_error { decimal } else { binary }
}

/// Formats a value like `1e-4` or `2.5e-3`; values of at least 0.1 have no exponent.
fn scientific(value: f64) -> String {
    if value >= 0.1 { plain(value) } else { format!("{value:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_people_write_them() {
        for (dimension, value, expected) in [
            (Dimension::Rtt, 90.0, "90 ms"),
            (Dimension::Rtt, 0.45, "0.45 ms"),
            (Dimension::Loss, 1e-4, "loss 1e-4"),
            (Dimension::Loss, 0.0, "no loss"),
            (Dimension::Size, 16e9, "16 GB"),
            (Dimension::Size, 64.0 * 1048576.0, "64 MiB"),
            (Dimension::Size, 160_002_048.0, "160 MB"),
            (Dimension::Size, 1073741824.0, "1 GiB"),
            (Dimension::Window, 2097152.0, "window 2 MiB"),
            (Dimension::Streams, 1.0, "1 stream"),
            (Dimension::Clients, 64.0, "64 clients"),
            (Dimension::Miles, 8600.0, "8600 miles"),
            (Dimension::Corruption, 1e-5, "corruption 1e-5"),
            (Dimension::Cross, 0.5, "cross traffic 0.5 Gb/s"),
            (Dimension::Beside, 1.0, "beside 1 flow"),
            (Dimension::Mtu, 9000.0, "MTU 9000"),
            (Dimension::Message, 1024.0, "message 1 KiB"),
            (Dimension::Links, 4.0, "4 links"),
        ] {
            assert_eq!(dimension.named(value), expected);
        }
    }

    #[test]
    fn every_value_has_a_tick() {
        let axis = Dimension::Loss.axis(&[0.0, 1e-6, 1e-3]);
        assert_eq!(axis.ticks.len(), 3);
        assert_eq!(axis.label, "Share of lost segments (logarithmic)");
        assert_eq!(Dimension::Rtt.axis(&[0.0, 180.0]).scale.place(90.0), 0.5);
    }
}
