//! PCI Express: the capacity of a link, and the capability in a device's configuration space.

use crate::doctor::PcieLink;
use crate::units::{Bytes, Rate};

/// The bytes around each payload: start, sequence number, header, checksum, end (1 + 2 + 16 + 4 +
/// 1), as published by NASA Goddard at SC10.
pub const PCIE_OVERHEAD_BYTES: u64 = 24;

/// Returns the theoretical maximum of `link` with packets of `payload`: payload / (payload + 24) x
/// encoding x lanes x rate per lane. This is Goddard's formula for all generations: 8b/10b up to 5
/// GT/s, 128b/130b up to 32, and 242 of 256 bytes of a FLIT at 64 (PCI Express 6.0, section 4.2.3).
pub fn theoretical_maximum(link: PcieLink, payload: Bytes) -> Rate {
    let encoding = encoding(link.giga_transfers);
    let payload = payload.get() as f64;
    let useful = payload / (payload + PCIE_OVERHEAD_BYTES as f64);
    let bps = useful * encoding.0 / encoding.1 * f64::from(link.lanes) * link.giga_transfers * 1e9;
    Rate::from_bps(bps as u64)
}

/// Returns the number of data bits and of bits on the wire.
pub(super) fn encoding(giga_transfers: f64) -> (f64, f64) {
    match giga_transfers {
        rate if rate <= 5.0 => (8.0, 10.0),
        rate if rate <= 32.0 => (128.0, 130.0),
        _ => (242.0, 256.0),
    }
}

/// The packet sizes in the PCI Express capability of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// The largest payload that the device supports.
    pub payload_supported: Bytes,
    /// The largest payload that the device may send, as configured.
    pub payload: Bytes,
    /// The largest read request, as configured.
    pub read_request: Bytes,
}

/// Finds the PCI Express capability in a device's configuration space. The list of capabilities
/// starts at byte 0x34 if bit 4 of the status (0x06) is set; each has its id, here 0x10, and the
/// offset of the next (`PCI_CAP_ID_EXP`, include/uapi/linux/pci_regs.h). Returns `None` if the
/// device has none.
pub fn express_capability(config: &[u8]) -> Option<Capability> {
    let byte = |at: usize| config.get(at).copied();
    let word = |at: usize| Some(u16::from_le_bytes([byte(at)?, byte(at + 1)?]));
    if byte(0x06)? & 0x10 == 0 {
        return None;
    }
    let mut at = usize::from(byte(0x34)? & !3);
    // Capabilities lie between 0x40 and 0xff and take at least four bytes; a longer list has a
    // loop.
    for _ in 0..48 {
        if at < 0x40 {
            return None;
        }
        if byte(at)? == 0x10 {
            // Device capabilities at 4, bits 2:0; device control at 8, bits 7:5 and 14:12.
            let size = |code: u16| Bytes::new(128 << (code & 7).min(5));
            let control = word(at + 8)?;
            return Some(Capability {
                payload_supported: size(word(at + 4)?),
                payload: size(control >> 5),
                read_request: size(control >> 12),
            });
        }
        at = usize::from(byte(at + 1)? & !3);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_come_out() {
        // "With MaxPayload defaulted to 128, the TMT = 53.8947 Gbps", 256: 58.5142 (SC10).
        let link = PcieLink { giga_transfers: 5.0, lanes: 16 };
        assert_eq!(theoretical_maximum(link, Bytes::new(128)).bps() / 100_000, 538_947);
        assert_eq!(theoretical_maximum(link, Bytes::new(256)).bps() / 100_000, 585_142);
        let third = PcieLink { giga_transfers: 8.0, lanes: 16 };
        assert_eq!(theoretical_maximum(third, Bytes::new(256)).to_string(), "115 Gb/s");
        let sixth = PcieLink { giga_transfers: 64.0, lanes: 16 };
        assert_eq!(theoretical_maximum(sixth, Bytes::new(512)).to_string(), "925 Gb/s");
    }

    #[test]
    fn the_capability_is_found_in_the_list() {
        let mut config = vec![0; 256];
        config[0x06] = 0x10;
        config[0x34] = 0x9c;
        config[0x9c..0x9e].copy_from_slice(&[0x11, 0x60]); // MSI-X first
        config[0x60..0x62].copy_from_slice(&[0x10, 0x00]);
        config[0x64] = 0x02; // supports 512
        config[0x68..0x6a].copy_from_slice(&0x2930u16.to_le_bytes()); // 256 set, reads 512
        let found = express_capability(&config).unwrap();
        assert_eq!(found.payload_supported, Bytes::new(512));
        assert_eq!((found.payload, found.read_request), (Bytes::new(256), Bytes::new(512)));
        // The part of the configuration space that an unprivileged user can read.
        assert_eq!(express_capability(&config[..64]), None);
        config[0x06] = 0;
        assert_eq!(express_capability(&config), None);
        // A list with a loop terminates.
        let mut round = vec![0; 256];
        (round[0x06], round[0x34], round[0x41]) = (0x10, 0x40, 0x40);
        assert_eq!(express_capability(&round), None);
    }
}
