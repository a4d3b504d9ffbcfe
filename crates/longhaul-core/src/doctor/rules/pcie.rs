//! Rules for PCI Express, with NASA Goddard's formula for the maximum rate of a link.

use crate::doctor::bus::{PCIE_OVERHEAD_BYTES, encoding, theoretical_maximum};
use crate::doctor::rule::{NOTHING, RuleAnswer, advice, fine, problem};
use crate::doctor::{PciFacts, Target};
use crate::units::Bytes;

/// The wanted size of read requests, which is the maximum. Goddard raised it from 512 bytes at
/// SC10.
const READ_REQUEST: Bytes = Bytes::new(4096);
/// The payload assumed if the device's payload is unreadable; it is the usual value.
const USUAL_PAYLOAD: Bytes = Bytes::new(256);
/// The rate in Gb/s above which losses on the bus matter.
const FAST: u64 = 40;
/// The bytes of a jumbo frame, which the interface reads with one or more requests.
const JUMBO_FRAME: u64 = 9000;

pub(super) fn rate(pci: &PciFacts, target: &Target) -> RuleAnswer {
    let Some(link) = pci.link.clone()? else { return NOTHING };
    let assumed = pci.payload.is_err().then_some(USUAL_PAYLOAD);
    let payload = pci.payload.clone().unwrap_or(USUAL_PAYLOAD);
    let maximum = theoretical_maximum(link, payload);
    let (useful, whole) = encoding(link.giga_transfers);
    let share = target.share(pci.sharers);
    let judgement = if maximum >= share { fine("maximum") } else { problem("maximum") };
    judgement
        .with("maximum_bps", maximum)
        .with("link", link.to_string())
        .with("wanted_bps", share)
        .with("payload_bytes", payload)
        .with("overhead_bytes", PCIE_OVERHEAD_BYTES)
        .with("encoded_bits", useful)
        .with("line_bits", whole)
        .with("lanes", link.lanes)
        .with("giga_transfers", link.giga_transfers)
        .with_any("assumed_bytes", assumed)
        .with_any("sharers", (pci.sharers > 1).then_some(pci.sharers))
        .with("target_bps", target.rate)
        .with("address", pci.address.as_str())
        .answer()
}

pub(super) fn link(pci: &PciFacts, target: &Target) -> RuleAnswer {
    let (Some(link), Some(best)) = (pci.link.clone()?, pci.link_max.clone()?) else {
        return NOTHING;
    };
    if link.lanes >= best.lanes && link.giga_transfers >= best.giga_transfers {
        return fine("full").with("link", link.to_string()).answer();
    }
    let payload = pci.payload.clone().unwrap_or(USUAL_PAYLOAD);
    // The link is slower than possible, but may be fast enough for the target.
    let enough = theoretical_maximum(link, payload) >= target.share(pci.sharers);
    if enough { fine("fast_enough") } else { advice("reduced") }
        .with("link", link.to_string())
        .with("best", best.to_string())
        .with("carries_bps", theoretical_maximum(link, payload))
        .with("could_carry_bps", theoretical_maximum(best, payload))
        .with("address", pci.address.as_str())
        .answer()
}

pub(super) fn payload(pci: &PciFacts, target: &Target) -> RuleAnswer {
    if pci.link.clone()?.is_none() {
        return NOTHING;
    }
    let (present, supported) = (pci.payload.clone()?, pci.payload_supported.clone()?);
    let useful = |bytes: Bytes| {
        let bytes = bytes.get() as f64;
        bytes / (bytes + PCIE_OVERHEAD_BYTES as f64) * 100.0
    };
    let enough = present >= supported || !target.is_at_least(FAST);
    if enough { fine("enough") } else { advice("small") }
        .with("payload_bytes", present)
        .with("supported_bytes", supported)
        .with("overhead_bytes", PCIE_OVERHEAD_BYTES)
        .with("useful_percent", useful(present))
        .with("possible_percent", useful(supported))
        .answer()
}

pub(super) fn read_request(pci: &PciFacts, target: &Target) -> RuleAnswer {
    if pci.link.clone()?.is_none() {
        return NOTHING;
    }
    let present = pci.read_request.clone()?;
    let enough = present >= READ_REQUEST || !target.is_at_least(FAST);
    if enough { fine("enough") } else { advice("small") }
        .with("request_bytes", present)
        .with("wanted_bytes", READ_REQUEST)
        .with("requests", JUMBO_FRAME.div_ceil(present.get().max(1)))
        .with("wanted_requests", JUMBO_FRAME.div_ceil(READ_REQUEST.get()))
        .with("address", pci.address.as_str())
        .answer()
}

pub(super) fn translation(pci: &PciFacts, target: &Target) -> RuleAnswer {
    let Some(kind) = pci.translation.clone()? else { return NOTHING };
    let fine_here = kind == "identity" || !target.is_at_least(FAST);
    let judgement = if fine_here { fine("harmless") } else { advice("translated") };
    judgement.with("kind", kind).answer()
}
