//! Values of the options of `longhaul test`.

use longhaul_core::plan::{LinkAddress, Placement, PlanError, parse_addresses};

/// The addresses of one option.
#[derive(Debug, Clone)]
pub(super) struct AddressList(Vec<LinkAddress>);

impl AddressList {
    pub(super) fn parse(text: &str) -> Result<Self, PlanError> {
        parse_addresses(text).map(AddressList)
    }

    pub(super) fn of(list: &Option<Self>) -> &[LinkAddress] {
        list.as_ref().map_or(&[], |list| &list.0)
    }
}

/// Parses `CPUS[,CPUS]` in the order of iperf3: this host, then the server.
pub(super) fn parse_placement(text: &str) -> Result<Placement, PlanError> {
    match text {
        "auto" => return Ok(Placement::Auto),
        "off" => return Ok(Placement::Free),
        _ => {}
    }
    let (here, there) = match text.split_once(',') {
        Some((here, there)) => (here, Some(there)),
        None => (text, None),
    };
    let list = |text: &str| text.parse().map(Some);
    // An empty list before the comma leaves this host to the scheduler.
    let client = if here.is_empty() && there.is_some() { None } else { list(here)? };
    Ok(Placement::On { client, server: there.map_or(Ok(None), list)? })
}

/// Parses a number, or a name of RFC 2474, 2597, 3246 or 8622.
pub(in crate::cli) fn parse_dscp(text: &str) -> Result<u8, PlanError> {
    let digit = |at: usize, range: std::ops::RangeInclusive<u8>| {
        let value = text.as_bytes().get(at)?.wrapping_sub(b'0');
        range.contains(&value).then_some(value)
    };
    let found = match (text.to_ascii_lowercase().as_str(), text.len()) {
        ("ef", _) => Some(46),
        ("le", _) => Some(1),
        (name, 3) if name.starts_with("cs") => digit(2, 0..=7).map(|class| class * 8),
        (name, 4) if name.starts_with("af") => digit(2, 1..=4)
            .zip(digit(3, 1..=3))
            .map(|(class, precedence)| class * 8 + precedence * 2),
        (number, _) => number.parse().ok().filter(|dscp| *dscp < 64),
    };
    found.ok_or_else(|| PlanError::OutOfRange {
        field: "DSCP",
        value: format!("'{text}'"),
        accepted: "0 to 63, or a name such as ef, le, cs1 or af41",
    })
}

/// Parses the traffic class as a whole byte, decimal or with `0x`. Its two lowest bits must be
/// zero, because the kernel sets them for ECN.
pub(super) fn parse_tos(text: &str) -> Result<u8, PlanError> {
    let byte: Option<u8> = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    byte.filter(|byte| byte % 4 == 0).map(|byte| byte / 4).ok_or_else(|| PlanError::OutOfRange {
        field: "type of service",
        value: format!("'{text}'"),
        accepted: "a byte whose two lowest bits, which are ECN's, are zero: 0x00 to 0xfc",
    })
}
