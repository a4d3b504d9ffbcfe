//! The documents of a measurement.

use std::net::SocketAddr;

use longhaul_core::plan::StampPlan;
use longhaul_core::result::{
    NoHardware, STAMP_SCHEMA, StampClock, StampClocks, StampOrigins, StampResult,
};

use super::super::reflector::LocalClock;
use super::PeriodReport;
use super::drive::{Measured, MeasuredPeriod};

impl Measured {
    /// Returns the document of a measurement with the reflector at `address`, which the user calls
    /// `target`. `version` is that of longhaul.
    #[must_use]
    pub fn document(
        self,
        target: &str,
        address: SocketAddr,
        plan: &StampPlan,
        version: &str,
    ) -> StampResult {
        let MeasuredPeriod { report, reflector, clock, local, no_hardware } = self.last;
        let same = plan.same_clock || is_this_host(address, local);
        StampResult {
            schema: STAMP_SCHEMA.to_owned(),
            version: version.to_owned(),
            target: target.to_owned(),
            address,
            local,
            plan: plan.clone(),
            end: self.end,
            seconds: self.time.as_secs_f64(),
            reflector: reflector.document(report.reply_p50_ms),
            stamps: origins(&report, no_hardware),
            clocks: clocks(clock, reflector.clock, same),
            figures: report.figures,
        }
    }
}

/// Returns the origins of this host's timestamps.
#[must_use]
pub fn origins(report: &PeriodReport, no_hardware: Option<NoHardware>) -> StampOrigins {
    StampOrigins { sent: report.departures, arrived: report.arrivals, no_hardware }
}

/// Returns whether a reflector is on this host: the kernel uses the destination as the source then.
#[must_use]
pub fn is_this_host(address: SocketAddr, local: Option<std::net::IpAddr>) -> bool {
    address.ip().is_loopback() || local == Some(address.ip())
}

/// Returns the state of the clocks of both ends. The error of a one-way delay is at most the sum of
/// both errors.
#[must_use]
pub fn clocks(local: LocalClock, reflector: StampClock, same: bool) -> StampClocks {
    let error_ms = Some(local.max_error.as_secs_f64() * 1e3);
    let local = StampClock { synchronised: local.synchronised, error_ms };
    let both = local.synchronised && reflector.synchronised;
    let sum = local.error_ms.zip(reflector.error_ms).map(|(one, other)| one + other);
    let error_ms = if same { Some(0.0) } else { sum.filter(|_| both) };
    StampClocks { local, reflector, same, error_ms }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_way_delays_have_an_error_only_with_two_good_clocks_or_one() {
        let local = |synchronised| LocalClock { synchronised, max_error: Duration::from_millis(2) };
        let far = |synchronised, error_ms| StampClock { synchronised, error_ms };
        let error = |near, far, same| clocks(local(near), far, same).error_ms;
        assert_eq!(error(true, far(true, Some(1.0)), false), Some(3.0));
        assert_eq!(error(true, far(false, Some(1.0)), false), None);
        assert_eq!(error(false, far(true, Some(1.0)), false), None);
        assert_eq!(error(true, far(true, None), false), None);
        assert_eq!(error(false, far(false, None), true), Some(0.0));
    }

    #[test]
    fn a_reflector_at_an_address_of_this_host_shares_its_clock() {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 862);
        assert!(is_this_host(at("127.0.0.9"), None));
        assert!(is_this_host(at("192.0.2.1"), "192.0.2.1".parse().ok()));
        assert!(!is_this_host(at("192.0.2.1"), "192.0.2.2".parse().ok()));
    }
}
