use std::fmt::Write;

use longhaul_core::plan::{Amount, Direction, Opener, Protocol, TestPlan};
use longhaul_core::units::format_span;

use super::words::{count, wrap};
use super::{COLUMNS, TestText};

/// What is run, in words.
pub(super) fn of(target: &str, plan: &TestPlan) -> String {
    let amount = match plan.amount {
        Amount::Time(time) => format_span(time),
        Amount::Bytes(bytes) => bytes.to_string(),
    };
    let way = match plan.direction {
        Direction::Forward => "to",
        Direction::Reverse => "from",
        Direction::Both => "to and from",
    };
    let streams = count(plan.streams.into(), "stream");
    let mut head = format!("{} {way} {target}, {streams}, {amount}", plan.protocol);
    if plan.direction == Direction::Both {
        head.push_str(" each way");
    }
    if !plan.omit.is_zero() {
        let _ = write!(head, ", first {} omitted", format_span(plan.omit));
    }
    if let Some(rate) = plan.rate_bps {
        let _ = write!(head, ", paced to {rate}");
    }
    if plan.protocol == Protocol::Udp {
        let _ = write!(head, ", {}-byte datagrams", plan.write_bytes.get());
    }
    if let Some(window) = plan.window_bytes {
        let _ = write!(head, ", window {window}");
    }
    if let Some(congestion) = &plan.congestion {
        let _ = write!(head, ", {congestion}");
    }
    if plan.links.len() > 1 {
        let _ = write!(head, ", over {}", count(plan.links.len() as u64, "link"));
    }
    if plan.zero_copy {
        head.push_str(", zero-copy");
    }
    if plan.opener == Opener::Server {
        head.push_str(", the server connects");
    }
    wrap(&head, COLUMNS)
}

impl TestText {
    /// What is run, and the heads of the columns.
    pub(crate) fn head(&self) -> String {
        format!("{}\n{}", self.head, self.columns())
    }
}
