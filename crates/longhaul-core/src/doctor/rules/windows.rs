//! Rules for TCP's buffers: a connection sends at most one window per round trip.

use crate::doctor::rule::{Answer, advice, fine, problem};
use crate::doctor::{HostFacts, Target};
use crate::result::Verdict;
use crate::units::{Bytes, Rate, format_span};

/// The largest window of a connection: 65535 shifted by 14 (RFC 7323, section 2.3).
const LARGEST_WINDOW: u64 = 65535 << 14;
/// The largest buffer size that the kernel accepts, an int.
const LARGEST_BUFFER: u64 = i32::MAX as u64;
const MIB: u64 = 1 << 20;

/// Returns the least number of connections whose windows reach the target.
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

fn arithmetic(target: &Target) -> String {
    let bdp = target.bdp();
    let sum = format!("{} x {} / 8 = {bdp} in flight", target.rate, format_span(target.rtt));
    match connections(target) {
        1 => sum,
        n => format!(
            "{sum}, over {n} connections at least, since one window ends at 1 GiB: {} each",
            Bytes::new(window(target))
        ),
    }
}

pub(super) fn autotuned_receive(host: &HostFacts, target: &Target) -> Answer {
    autotuned(host, target, "net.ipv4.tcp_rmem", |bytes, one| {
        format!(
            "about half of a buffer is window: one connection receives about {}",
            one(bytes / 2)
        )
    })
}

pub(super) fn autotuned_send(host: &HostFacts, target: &Target) -> Answer {
    autotuned(host, target, "net.ipv4.tcp_wmem", |bytes, one| {
        format!(
            "data in flight stay in the buffer, beside unsent data: one connection \
             sends {} at most, and about half of it with both",
            one(bytes)
        )
    })
}

fn autotuned(
    host: &HostFacts,
    target: &Target,
    name: &str,
    limit: fn(u64, &dyn Fn(u64) -> Rate) -> String,
) -> Answer {
    let seen = host.number(name, 2)?;
    let wanted = buffer(target);
    let limit = limit(seen, &|bytes| reached(bytes, target));
    let why = format!("{}; {limit}", arithmetic(target));
    let verdict = match seen {
        _ if seen >= wanted => Verdict::Ok,
        _ if seen >= wanted / 2 => Verdict::Advice,
        _ => Verdict::Problem,
    };
    let values = format!("{} {} {wanted}", host.number(name, 0)?, host.number(name, 1)?);
    fine(format!("{seen} ({})", Bytes::new(seen)))
        .judged(verdict)
        .wanted(format!("{wanted} ({}) or more, as the third number", Bytes::new(wanted)))
        .why(why)
        .set(name, values)
        .answer()
}

pub(super) fn asked_receive(host: &HostFacts, target: &Target) -> Answer {
    asked(host, target, "net.core.rmem_max")
}

pub(super) fn asked_send(host: &HostFacts, target: &Target) -> Answer {
    asked(host, target, "net.core.wmem_max")
}

/// Judges the largest buffer that a program can request. The kernel doubles the requested size
/// (socket(7)) and does not autotune this buffer. UDP buffers are never autotuned.
fn asked(host: &HostFacts, target: &Target, name: &str) -> Answer {
    let seen = host.number(name, 0)?;
    let wanted = window(target).next_multiple_of(MIB).min(LARGEST_BUFFER);
    let judgement = if seen >= wanted { fine } else { advice };
    judgement(format!("{seen} ({})", Bytes::new(seen)))
        .wanted(format!("{wanted} ({}) or more", Bytes::new(wanted)))
        .why(format!(
            "{}; a program that sets its buffers (-w) gets no more than this, {} a connection, and \
             UDP has no other",
            arithmetic(target),
            reached(seen, target)
        ))
        .set(name, wanted)
        .answer()
}

pub(super) fn autotuning(host: &HostFacts, _: &Target) -> Answer {
    switched_on(host, "net.ipv4.tcp_moderate_rcvbuf", "receive buffers keep their initial size")
}

pub(super) fn scaling(host: &HostFacts, target: &Target) -> Answer {
    let why = format!("without it a window ends at 64 KiB: {}", reached(65535, target));
    switched_on(host, "net.ipv4.tcp_window_scaling", &why)
}

fn switched_on(host: &HostFacts, name: &str, why: &str) -> Answer {
    let seen = host.number(name, 0)?;
    let judgement = if seen == 0 { problem("off") } else { fine("on") };
    judgement.wanted("on").why(why).set(name, 1).answer()
}

/// Judges tcp_mem, three numbers of pages (tcp(7)). Below the first number the kernel does not
/// limit TCP. From the second number on, it shrinks the buffers of every connection. Above the
/// third number, allocations fail.
pub(super) fn host_wide(host: &HostFacts, target: &Target) -> Answer {
    let (name, page) = ("net.ipv4.tcp_mem", host.page_bytes.max(1));
    let seen = host.number(name, 1)? * page;
    let wanted = (2 * target.bdp().get()).next_multiple_of(MIB);
    let memory = host.memory.clone()?;
    let verdict = match seen {
        _ if seen >= wanted => Verdict::Ok,
        _ if seen >= wanted / 2 => Verdict::Advice,
        _ => Verdict::Problem,
    };
    let judgement = fine(format!("pressure from {} on", Bytes::new(seen)))
        .judged(verdict)
        .wanted(format!("{} or more", Bytes::new(wanted)));
    let sum = format!(
        "{} x {} / 8 = {}, twice for the kernel's book-keeping, in buffers of all connections",
        target.rate,
        format_span(target.rtt),
        target.bdp()
    );
    // Half of the memory remains for programs and the page cache.
    if wanted > memory.get() / 2 {
        return judgement
            .why(format!("{sum}; this host has {memory} of memory: it needs more for this target"))
            .answer();
    }
    let pages = |bytes: u64| bytes.div_ceil(page);
    let values = format!("{} {} {}", pages(wanted / 4 * 3), pages(wanted), pages(wanted / 2 * 3));
    judgement.why(sum).set(name, values).answer()
}

pub(super) fn pressure(host: &HostFacts, _: &Target) -> Answer {
    let memory = host.tcp_memory.clone()?;
    if memory.pressure {
        return problem(format!("{} in use, under pressure", memory.used))
            .wanted("no pressure")
            .why(
                "the kernel keeps the window of every connection small until memory is given back; \
                  connections with much unsent data hold it",
            )
            .run("ss -tmn | sort -k2 -n | tail")
            .answer();
    }
    fine(format!("{} in use, no pressure", memory.used)).answer()
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
        assert!(arithmetic(&hundred).contains("over 2 connections"), "{}", arithmetic(&hundred));
        // 14 connections: twice the window of one is less than the largest buffer.
        assert_eq!((connections(&target(400, 300)), buffer(&target(400, 300))), (14, 2044 * MIB));
        assert_eq!(connections(&target(1, 0)), 1);
    }
}
