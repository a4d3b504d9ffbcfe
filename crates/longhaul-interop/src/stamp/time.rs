//! Timestamps and error estimates of STAMP packets.

use std::time::Duration;

/// The seconds from the epoch of NTP, 1900, to that of Unix, 1970 (RFC 5905, figure 4).
const NTP_TO_UNIX_SECONDS: u64 = 2_208_988_800;
const NANOS: u64 = 1_000_000_000;

/// The format of the timestamps of a packet, the Z bit of its error estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeFormat {
    /// Seconds since 1900 and a binary fraction, 32 bits each (RFC 5905).
    #[default]
    Ntp,
    /// Seconds since 1970 and nanoseconds, 32 bits each: the truncated format of PTPv2 (IEEE 1588).
    /// longhaul does not convert between UTC and TAI.
    Ptp,
}

/// A timestamp as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the timestamp of a time in nanoseconds since 1970.
    #[must_use]
    pub fn of(unix_nanos: u64, format: TimeFormat) -> Self {
        let (seconds, nanos) = (unix_nanos / NANOS, unix_nanos % NANOS);
        let (seconds, fraction) = match format {
            TimeFormat::Ntp => (seconds + NTP_TO_UNIX_SECONDS, (nanos << 32) / NANOS),
            TimeFormat::Ptp => (seconds, nanos),
        };
        Timestamp((seconds << 32) | fraction)
    }

    /// Returns the time in nanoseconds since 1970. Of the times that differ by a multiple of 2^32
    /// seconds, it returns the one nearest to `near`. `None` if the nanoseconds are invalid.
    #[must_use]
    pub fn unix_nanos(self, format: TimeFormat, near: u64) -> Option<u64> {
        let (seconds, fraction) = ((self.0 >> 32) as u32, self.0 & u64::from(u32::MAX));
        let (epoch, nanos) = match format {
            // Rounded, so that a time survives its conversion to 2^-32 s.
            TimeFormat::Ntp => (NTP_TO_UNIX_SECONDS, (fraction * NANOS + (1 << 31)) >> 32),
            TimeFormat::Ptp if fraction >= NANOS => return None,
            TimeFormat::Ptp => (0, fraction),
        };
        let near = near / NANOS;
        let ahead = seconds.wrapping_sub((near + epoch) as u32) as i32;
        let seconds = near.checked_add_signed(ahead.into())?;
        seconds.checked_mul(NANOS)?.checked_add(nanos)
    }
}

/// The error estimate of a clock (RFC 4656, section 4.1.2; RFC 8186, section 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorEstimate(pub u16);

impl ErrorEstimate {
    const SYNCHRONISED: u16 = 1 << 15;
    const PTP: u16 = 1 << 14;

    /// Returns the estimate of a clock with an error of at most `error`, rounded up. The unit is
    /// 2^-32 s, the largest error about 5 x 10^11 s.
    #[must_use]
    pub fn of(synchronised: bool, error: Duration, format: TimeFormat) -> Self {
        let mut multiplier = ((error.as_nanos() << 32).div_ceil(NANOS.into())).max(1);
        let mut scale = 0;
        while multiplier > 255 && scale < 63 {
            multiplier = multiplier.div_ceil(2);
            scale += 1;
        }
        let flags = if synchronised { Self::SYNCHRONISED } else { 0 };
        let format = if format == TimeFormat::Ptp { Self::PTP } else { 0 };
        ErrorEstimate(flags | format | (scale << 8) | multiplier.min(255) as u16)
    }

    /// Returns whether the clock is synchronized with UTC by an external source.
    #[must_use]
    pub fn is_synchronised(self) -> bool {
        self.0 & Self::SYNCHRONISED != 0
    }

    /// Returns the format of the timestamps.
    #[must_use]
    pub fn format(self) -> TimeFormat {
        if self.0 & Self::PTP == 0 { TimeFormat::Ntp } else { TimeFormat::Ptp }
    }

    /// Returns the error in seconds; `None` if the multiplier is 0, which is invalid.
    #[must_use]
    pub fn seconds(self) -> Option<f64> {
        let (scale, multiplier) = (i32::from(self.0 >> 8 & 63), self.0 & 255);
        (multiplier != 0).then(|| f64::from(multiplier) * 2f64.powi(scale - 32))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_standards() {
        // 2026-11-22 00:00:00.5 UTC.
        let at = 1_795_305_600_500_000_000;
        assert_eq!(
            Timestamp::of(at, TimeFormat::Ntp).0,
            (1_795_305_600 + 2_208_988_800) << 32 | 1 << 31
        );
        assert_eq!(Timestamp::of(at, TimeFormat::Ptp).0, 1_795_305_600 << 32 | 500_000_000);
        // RFC 4656: 0x0001 is an error of 2^-32 s; one second is 128 x 2^(25-32).
        assert_eq!(ErrorEstimate::of(false, Duration::ZERO, TimeFormat::Ntp).0, 0x0001);
        assert_eq!(ErrorEstimate::of(true, Duration::from_secs(1), TimeFormat::Ntp).0, 0x9980);
        assert_eq!(ErrorEstimate::of(true, Duration::from_secs(1), TimeFormat::Ptp).0, 0xd980);
        assert_eq!(ErrorEstimate(0x1980).seconds(), Some(1.0));
        assert_eq!(ErrorEstimate(0x1900).seconds(), None);
    }

    #[test]
    fn times_pass_the_ends_of_the_eras() {
        // NTP's seconds wrap on 2036-02-07, those of PTP on 2106-02-07.
        for (format, wrap) in [(TimeFormat::Ntp, 2_085_978_496), (TimeFormat::Ptp, 1u64 << 32)] {
            let (before, after) = ((wrap - 1) * NANOS, (wrap + 1) * NANOS);
            for (at, near) in [(before, after), (after, before), (after, after)] {
                let stamp = Timestamp::of(at, format);
                assert_eq!(stamp.unix_nanos(format, near), Some(at), "{format:?}");
            }
        }
        assert_eq!(Timestamp(NANOS).unix_nanos(TimeFormat::Ptp, 0), None);
        assert_eq!(Timestamp(u64::MAX).unix_nanos(TimeFormat::Ntp, u64::MAX), None);
    }

    proptest! {
        #[test]
        fn a_time_survives_both_formats(at in 0..(1u64 << 62), off in 0..(1u64 << 60)) {
            for format in [TimeFormat::Ntp, TimeFormat::Ptp] {
                prop_assert_eq!(Timestamp::of(at, format).unix_nanos(format, at + off), Some(at));
            }
        }

        #[test]
        fn an_estimate_is_at_least_the_error_and_within_a_hundredth(nanos in 1u64..(1 << 60)) {
            let error = Duration::from_nanos(nanos);
            let found = ErrorEstimate::of(true, error, TimeFormat::Ntp).seconds().unwrap();
            let wanted = error.as_secs_f64();
            prop_assert!(found >= wanted * 0.999_999 && found <= wanted * 1.01 + 2e-9, "{found} {wanted}");
        }

        #[test]
        fn any_wire_value_is_read(stamp: u64, estimate: u16, near: u64) {
            let estimate = ErrorEstimate(estimate);
            let _ = (Timestamp(stamp).unix_nanos(estimate.format(), near), estimate.seconds());
        }
    }
}
