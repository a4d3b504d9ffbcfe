//! Rules for PCI Express, with Goddard's formula.

use crate::doctor::bus::{PCIE_OVERHEAD_BYTES, encoding, theoretical_maximum};
use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem};
use crate::doctor::{PciFacts, Target};
use crate::units::Bytes;

/// The wanted size of read requests, which is the maximum. Goddard raised it from 512 bytes at
/// SC10.
const READ_REQUEST: Bytes = Bytes::new(4096);
/// The payload assumed if the device's payload is unreadable; it is the usual value.
const USUAL_PAYLOAD: Bytes = Bytes::new(256);
/// The rate in Gb/s above which losses on the bus matter.
const FAST: u64 = 40;

pub(super) fn rate(pci: &PciFacts, target: &Target) -> Answer {
    let Some(link) = pci.link.clone()? else { return NOTHING };
    let (payload, guess) = match &pci.payload {
        Ok(payload) => (*payload, ""),
        Err(_) => (USUAL_PAYLOAD, " (MaxPayload is unreadable; 256 assumed)"),
    };
    let maximum = theoretical_maximum(link, payload);
    let (useful, whole) = encoding(link.giga_transfers);
    let share = target.share(pci.sharers);
    let shared = match pci.sharers {
        1 => String::new(),
        sharers => format!("; {sharers} devices share {}", target.rate),
    };
    let judgement = if maximum >= share { fine } else { problem };
    judgement(format!("{maximum} over {link}"))
        .wanted(format!("{share} or more"))
        .why(format!(
            "{payload}/({payload}+{PCIE_OVERHEAD_BYTES}) x {useful}/{whole} x {} lanes x {} GT/s = \
             {maximum}{guess}{shared}",
            link.lanes,
            link.giga_transfers,
            payload = payload.get()
        ))
        .run(format!("sudo lspci -vv -s {}    # another slot, or another card", pci.address))
        .answer()
}

pub(super) fn link(pci: &PciFacts, target: &Target) -> Answer {
    let (Some(link), Some(best)) = (pci.link.clone()?, pci.link_max.clone()?) else {
        return NOTHING;
    };
    if link.lanes >= best.lanes && link.giga_transfers >= best.giga_transfers {
        return fine(link.to_string()).answer();
    }
    let payload = pci.payload.clone().unwrap_or(USUAL_PAYLOAD);
    let why = format!(
        "it carries {} and could carry {}: a narrower or older slot, a riser, or a card that does \
         not sit well",
        theoretical_maximum(link, payload),
        theoretical_maximum(best, payload)
    );
    // The link is slower than possible, but fast enough for the target.
    let enough = theoretical_maximum(link, payload) >= target.share(pci.sharers);
    if enough { fine(format!("{link}, of {best}")) } else { advice(link.to_string()) }
        .wanted(best.to_string())
        .why(why)
        .run(format!("sudo lspci -vv -s {} | grep -E 'LnkCap|LnkSta'", pci.address))
        .answer()
}

pub(super) fn payload(pci: &PciFacts, target: &Target) -> Answer {
    if pci.link.clone()?.is_none() {
        return NOTHING;
    }
    let (seen, supported) = (pci.payload.clone()?, pci.payload_supported.clone()?);
    if seen >= supported || !target.is_at_least(FAST) {
        return fine(format!("{} bytes", seen.get())).answer();
    }
    let useful = |bytes: Bytes| {
        let bytes = bytes.get() as f64;
        format!("{:.1} %", bytes / (bytes + PCIE_OVERHEAD_BYTES as f64) * 100.0)
    };
    advice(format!("{} bytes", seen.get()))
        .wanted(format!("{} bytes, which the device and every bridge support", supported.get()))
        .why(format!(
            "payload/(payload+{PCIE_OVERHEAD_BYTES}): {} of the bus is useful, and {} would be",
            useful(seen),
            useful(supported)
        ))
        .run("sudo grubby --update-kernel=ALL --args=pci=pcie_bus_perf    # or GRUB_CMDLINE_LINUX")
        .answer()
}

pub(super) fn read_request(pci: &PciFacts, target: &Target) -> Answer {
    if pci.link.clone()?.is_none() {
        return NOTHING;
    }
    let seen = pci.read_request.clone()?;
    if seen >= READ_REQUEST || !target.is_at_least(FAST) {
        return fine(format!("{} bytes", seen.get())).answer();
    }
    // Bits 14:12 of the device control are the size, 5 for 4096 (pci_regs.h); setpci accepts a
    // mask.
    advice(format!("{} bytes", seen.get()))
        .wanted(format!("{} bytes", READ_REQUEST.get()))
        .why(format!(
            "a packet of 9000 bytes is fetched with {} requests, and would be with {}; each waits \
             for memory",
            9000_u64.div_ceil(seen.get().max(1)),
            9000_u64.div_ceil(READ_REQUEST.get())
        ))
        .run(format!("sudo setpci -s {} CAP_EXP+8.w=5000:7000", pci.address))
        .answer()
}

pub(super) fn translation(pci: &PciFacts, target: &Target) -> Answer {
    let Some(kind) = pci.translation.clone()? else { return NOTHING };
    if kind == "identity" || !target.is_at_least(FAST) {
        return fine(kind).answer();
    }
    advice(kind)
        .wanted("identity")
        .why(
            "the IOMMU translates the address of every buffer; iommu=pt lets the host's own \
              devices through (ESnet's guide for data-transfer nodes)",
        )
        .run("sudo grubby --update-kernel=ALL --args=iommu=pt    # or GRUB_CMDLINE_LINUX; restart")
        .answer()
}
