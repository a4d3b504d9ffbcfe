//! Presets of paths, and delays of fiber lengths.

use std::time::Duration;

/// A path by its round-trip time, as in the shipped topologies of the same names. Rate, loss and
/// other options can be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// A local network, like NASA Goddard's 20G testbed (SC10): 0.1 ms.
    Lan,
    /// A metropolitan area and its region, SC10's second round trip: 15 ms.
    Man,
    /// Across the United States, SC10's third round trip: 90 ms (Goddard to Ames has 87).
    Wan,
    /// From the western United States to Europe, SC10's fourth round trip: 180 ms.
    Transatlantic,
    /// A geostationary satellite link, like NASA Goddard's satellite path: 1124 ms.
    Satellite,
}

impl Preset {
    /// The valid names, for error messages.
    pub const FORM: &str = "a preset is lan, man, wan, transatlantic or satellite";

    /// Returns the preset with that name.
    pub fn named(name: &str) -> Option<Preset> {
        Some(match name {
            "lan" => Preset::Lan,
            "man" => Preset::Man,
            "wan" => Preset::Wan,
            "transatlantic" => Preset::Transatlantic,
            "satellite" => Preset::Satellite,
            _ => return None,
        })
    }

    /// Returns the round-trip time.
    pub const fn rtt(self) -> Duration {
        Duration::from_micros(match self {
            Preset::Lan => 100,
            Preset::Man => 15_000,
            Preset::Wan => 90_000,
            Preset::Transatlantic => 180_000,
            Preset::Satellite => 1_124_000,
        })
    }
}

/// The form of a valid distance, for error messages.
pub(super) const DISTANCE_EXAMPLE: &str =
    "a distance is at most 1000000km, in mi or km of fiber, such as 8600mi or 1400km";

/// Returns the one-way delay of the fiber length `text`: the length times 1.4682, the group index
/// of standard single-mode fiber at 1550 nm (Corning SMF-28), divided by the speed of light.
pub fn fiber_delay(text: &str) -> Option<Duration> {
    const GROUP_INDEX: f64 = 1.4682;
    const LIGHT_KM_PER_SECOND: f64 = 299_792.458;
    const KM_PER_MILE: f64 = 1.609_344;
    let text = text.trim();
    let (number, km) = match text.strip_suffix("mi") {
        Some(miles) => (miles, KM_PER_MILE),
        None => (text.strip_suffix("km")?, 1.0),
    };
    let km = number.trim().parse::<f64>().ok()? * km;
    let seconds = km * GROUP_INDEX / LIGHT_KM_PER_SECOND;
    (0.0..=1e6).contains(&km).then(|| Duration::from_nanos((seconds * 1e9).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fiber_takes_five_microseconds_for_each_kilometer() {
        let micros = |text| fiber_delay(text).map(|delay| delay.as_micros());
        assert_eq!(micros("1000km"), Some(4897));
        assert_eq!(micros("8600mi"), Some(67_781));
        assert_eq!(micros("0.2 mi"), Some(1));
        for text in ["8600", "far", "-1km", "NaNkm", "1e9km", "8600 miles"] {
            assert_eq!(fiber_delay(text), None, "{text}");
        }
    }
}
