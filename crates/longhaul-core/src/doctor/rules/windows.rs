//! Rules for TCP's buffers: a connection sends at most one window per round trip.

use super::switch;
use crate::doctor::rule::{RuleAnswer, RuleJudgement, advice, fine, judged, problem};
use crate::doctor::{HostFacts, Target};
use crate::result::FindingVerdict;
use crate::units::{Bytes, Rate};

/// The largest window of a connection: 65535 shifted by 14 (RFC 7323, section 2.3).
const LARGEST_WINDOW: u64 = 65535 << 14;
/// The largest buffer size that the kernel accepts, an int.
const LARGEST_BUFFER: u64 = i32::MAX as u64;
const MIB: u64 = 1 << 20;

/// Returns the minimum number of connections whose windows reach the target.
fn connections(target: &Target) -> u64 {
    target.bdp().get().div_ceil(LARGEST_WINDOW).max(1)
}

/// Returns the window that each connection needs.
fn window(target: &Target) -> u64 {
    target.bdp().get().div_ceil(connections(target))
}

/// Returns the buffer size for [`window`]: twice the window. The window that the kernel offers is
/// about half of a receive buffer (tcp_adv_win_scale 1, Documentation/networking/ip-sysctl.rst). The
/// kernel makes a send buffer twice the window (tcp_sndbuf_expand in net/ipv4/tcp_input.c).
fn buffer(target: &Target) -> u64 {
    (2 * window(target)).next_multiple_of(MIB).min(LARGEST_BUFFER)
}

/// Returns the rate of a connection with a window of `bytes`.
fn reached(bytes: u64, target: &Target) -> Rate {
    Rate::mean(Bytes::new(bytes.min(LARGEST_WINDOW)), target.rtt)
}

/// Adds the target, and the connections that it needs if one window is too small.
fn with_windows(judgement: RuleJudgement, target: &Target) -> RuleJudgement {
    let many = connections(target) > 1;
    judgement
        .for_target(target)
        .with_any("connections", many.then(|| connections(target)))
        .with_any("window_bytes", many.then(|| window(target)))
}

pub(super) fn autotuned_receive(host: &HostFacts, target: &Target) -> RuleAnswer {
    // About half of a receive buffer is window.
    autotuned(host, target, "net.ipv4.tcp_rmem", |bytes| bytes / 2)
}

pub(super) fn autotuned_send(host: &HostFacts, target: &Target) -> RuleAnswer {
    autotuned(host, target, "net.ipv4.tcp_wmem", |bytes| bytes)
}

fn autotuned(host: &HostFacts, target: &Target, name: &str, usable: fn(u64) -> u64) -> RuleAnswer {
    let present = host.number(name, 2)?;
    let judgement = judged(by_size(present, buffer(target)), "size")
        .with("buffer_bytes", present)
        .with("wanted_bytes", buffer(target))
        .with("reached_bps", reached(usable(present), target))
        .with("least_bytes", host.number(name, 0)?)
        .with("initial_bytes", host.number(name, 1)?);
    with_windows(judgement, target).answer()
}

/// Returns the verdict on a size: half of the wanted size still allows half of the rate.
fn by_size(present: u64, wanted: u64) -> FindingVerdict {
    match present {
        _ if present >= wanted => FindingVerdict::Ok,
        _ if present >= wanted / 2 => FindingVerdict::Advice,
        _ => FindingVerdict::Problem,
    }
}

pub(super) fn asked_receive(host: &HostFacts, target: &Target) -> RuleAnswer {
    largest_request(host, target, "net.core.rmem_max")
}

pub(super) fn asked_send(host: &HostFacts, target: &Target) -> RuleAnswer {
    largest_request(host, target, "net.core.wmem_max")
}

/// Judges the largest buffer that a program can request. The kernel doubles the requested size
/// (socket(7)) and does not autotune this buffer. UDP buffers are never autotuned.
fn largest_request(host: &HostFacts, target: &Target, name: &str) -> RuleAnswer {
    let present = host.number(name, 0)?;
    let wanted = window(target).next_multiple_of(MIB).min(LARGEST_BUFFER);
    let judgement = if present >= wanted { fine("size") } else { advice("size") };
    let judgement = judgement
        .with("buffer_bytes", present)
        .with("wanted_bytes", wanted)
        .with("reached_bps", reached(present, target));
    with_windows(judgement, target).answer()
}

pub(super) fn autotuning(host: &HostFacts, _: &Target) -> RuleAnswer {
    switch(host, "net.ipv4.tcp_moderate_rcvbuf")?.answer()
}

pub(super) fn scaling(host: &HostFacts, target: &Target) -> RuleAnswer {
    let judgement = switch(host, "net.ipv4.tcp_window_scaling")?;
    judgement.with("reached_bps", reached(65535, target)).answer()
}

/// Judges tcp_mem, three numbers of pages (tcp(7)). Below the first number the kernel does not
/// limit TCP. From the second number on, it shrinks the buffers of every connection. Above the
/// third number, allocations fail.
pub(super) fn host_wide(host: &HostFacts, target: &Target) -> RuleAnswer {
    let page = host.page_bytes.max(1);
    let present = host.number("net.ipv4.tcp_mem", 1)? * page;
    let wanted = (2 * target.bdp().get()).next_multiple_of(MIB);
    let memory = host.memory.clone()?;
    let verdict = by_size(present, wanted);
    // Half of the memory remains for programs and the page cache.
    let judgement = if wanted > memory.get() / 2 {
        judged(verdict, "little_memory").with("memory_bytes", memory)
    } else {
        let pages = |bytes: u64| bytes.div_ceil(page);
        judged(verdict, "size")
            .with("wanted_low_pages", pages(wanted / 4 * 3))
            .with("wanted_pages", pages(wanted))
            .with("wanted_high_pages", pages(wanted / 2 * 3))
    };
    judgement
        .with("pressure_bytes", present)
        .with("wanted_bytes", wanted)
        .for_target(target)
        .answer()
}

pub(super) fn pressure(host: &HostFacts, _: &Target) -> RuleAnswer {
    let memory = host.tcp_memory.clone()?;
    let judgement = if memory.pressure { problem("pressure") } else { fine("no_pressure") };
    judgement.with("used_bytes", memory.used).answer()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::result::TargetSource;

    fn target(gigabits: u64, millis: u64) -> Target {
        Target {
            rate: Rate::from_bps(gigabits * 1_000_000_000),
            rate_from: TargetSource::Asked,
            rtt: Duration::from_millis(millis),
            rtt_from: TargetSource::Asked,
            to: None,
            port: 5210,
        }
    }

    #[test]
    fn windows_follow_the_bandwidth_delay_product() {
        let ten = target(10, 100);
        assert_eq!((connections(&ten), window(&ten)), (1, 125_000_000));
        assert_eq!(buffer(&ten), 239 * MIB); // 250 MB, in whole MiB
        assert_eq!(reached(125_000_000, &ten).bps(), 10_000_000_000);
        // 100 Gb/s over 100 ms is 1.25 GB, more than one TCP window.
        let hundred = target(100, 100);
        assert_eq!((connections(&hundred), window(&hundred)), (2, 625_000_000));
        assert_eq!(buffer(&hundred), 1193 * MIB);
        // 14 connections: twice the window of one is less than the largest buffer.
        assert_eq!((connections(&target(400, 300)), buffer(&target(400, 300))), (14, 2044 * MIB));
        assert_eq!(connections(&target(1, 0)), 1);
    }
}
