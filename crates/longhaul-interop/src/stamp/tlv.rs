//! The extensions of STAMP packets: type, length and value (RFC 8972, section 4).
//!
//! ```text
//!  0  1  flags: U 0x80 unrecognized, M 0x40 malformed, I 0x20 integrity failed
//!  1  1  type
//!  2  2  length of the value
//!  4     value
//! ```

use super::key::{StampKey, TAG_BYTES};

/// The bytes of the header of an extension.
pub(super) const HEADER_BYTES: usize = 4;
/// The flag of an extension that the reflector does not know.
pub(super) const UNRECOGNIZED: u8 = 0x80;
/// The flag of an extension with an invalid length.
pub(super) const MALFORMED: u8 = 0x40;
/// The flag of an extension whose HMAC is invalid.
pub(super) const FAILED: u8 = 0x20;

/// The types of extensions (RFC 8972, table 2) that longhaul knows.
pub(super) mod kind {
    /// Any bytes.
    pub(crate) const PADDING: u8 = 1;
    /// Sources of the reflector's time.
    pub(crate) const TIMESTAMPS: u8 = 3;
    /// Traffic class.
    pub(crate) const CLASS: u8 = 4;
    /// Counters of packets.
    pub(crate) const COUNTERS: u8 = 5;
    /// The time at which the previous reply left.
    pub(crate) const FOLLOW_UP: u8 = 7;
    /// HMAC of the extensions before it.
    pub(crate) const HMAC: u8 = 8;
}

/// Returns the length of the value that the standard requires; `None` for any length. The outer
/// `None` is an unknown type.
pub(super) fn required_bytes(kind: u8) -> Option<Option<usize>> {
    match kind {
        kind::PADDING => Some(None),
        kind::TIMESTAMPS | kind::CLASS => Some(Some(4)),
        kind::COUNTERS => Some(Some(12)),
        kind::FOLLOW_UP => Some(Some(16)),
        kind::HMAC => Some(Some(TAG_BYTES)),
        _ => None,
    }
}

/// The position of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The position of the header.
    pub(super) at: usize,
    /// The type.
    pub(super) kind: u8,
    /// The length of the value in bytes.
    pub(super) bytes: usize,
    /// True if the value ends after the packet, or its length is invalid for its type.
    pub(super) malformed: bool,
}

impl Place {
    /// Returns the range of the value; of a malformed extension the part in the packet.
    pub(super) fn value(self, area: usize) -> std::ops::Range<usize> {
        let start = self.at + HEADER_BYTES;
        start..(start + self.bytes).min(area)
    }
}

/// Returns the extensions in `area`, the bytes after the base packet. The last may be malformed. The
/// reserved type 0 is padding of TWAMP Light: it ends the extensions, and so do fewer bytes than a
/// header.
pub(super) fn places(area: &[u8]) -> Vec<Place> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some([_, kind, high, low]) = area.get(at..).and_then(<[u8]>::first_chunk) {
        if *kind == 0 {
            break;
        }
        let bytes = usize::from(u16::from_be_bytes([*high, *low]));
        let long = at + HEADER_BYTES + bytes > area.len();
        let wrong = required_bytes(*kind).flatten().is_some_and(|required| required != bytes);
        found.push(Place { at, kind: *kind, bytes, malformed: long || wrong });
        if long {
            break;
        }
        at += HEADER_BYTES + bytes;
    }
    found
}

/// Returns whether the HMAC of the extensions in `area` is valid, for a packet with this sequence
/// number. With a key it must be present, unless the only extension is padding; without a key it
/// cannot be verified.
pub(super) fn integrity(area: &[u8], sequence: u32, key: Option<&StampKey>) -> bool {
    let places = places(area);
    let Some(index) = places.iter().position(|place| place.kind == kind::HMAC) else {
        let padding = matches!(places[..], [] | [Place { kind: kind::PADDING, .. }]);
        return key.is_none() || padding;
    };
    let (hmac, after) = (places[index], &places[index + 1..]);
    let Some(key) = key else { return false };
    // Only padding may follow (RFC 8972, section 4.8).
    let last = after.iter().all(|place| place.kind == kind::PADDING);
    let covered = [&sequence.to_be_bytes()[..], &area[..hmac.at]];
    last && !hmac.malformed && key.verify(&covered, &area[hmac.value(area.len())])
}

/// Writes the HMAC of the extensions in `area`, if they have a place for it.
pub(super) fn sign(area: &mut [u8], sequence: u32, key: &StampKey) {
    let found = places(area).into_iter().find(|place| place.kind == kind::HMAC);
    if let Some(place) = found.filter(|place| !place.malformed) {
        let tag = key.tag(&[&sequence.to_be_bytes(), &area[..place.at]]);
        area[place.value(usize::MAX)].copy_from_slice(&tag);
    }
}

/// The value of the class of service extension (RFC 8972, section 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassOfService {
    /// The DSCP that the sender requests for the reply.
    pub wanted_dscp: u8,
    /// The DSCP with which the request arrived.
    pub dscp: u8,
    /// The ECN bits with which the request arrived.
    pub ecn: u8,
    /// True if the reflector did not use the requested DSCP.
    pub refused: bool,
}

impl ClassOfService {
    /// Reads a value of four bytes.
    #[must_use]
    pub fn decode([one, two, three, _]: [u8; 4]) -> Self {
        let word = u32::from_be_bytes([one, two, three, 0]);
        ClassOfService {
            wanted_dscp: (word >> 26) as u8,
            dscp: (word >> 20 & 63) as u8,
            ecn: (word >> 18 & 3) as u8,
            refused: word >> 16 & 3 != 0,
        }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn encode(self) -> [u8; 4] {
        let fields = [(self.wanted_dscp & 63, 26), (self.dscp & 63, 20), (self.ecn & 3, 18)];
        let word = fields.iter().fold(u32::from(self.refused) << 16, |word, (field, shift)| {
            word | u32::from(*field) << shift
        });
        word.to_be_bytes()
    }
}

/// The method by which a timestamp was taken (RFC 8972, table 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The network interface.
    Hardware,
    /// The kernel or the program.
    Software,
    /// The control plane of a router.
    ControlPlane,
    /// Another or no method.
    Unknown,
}

impl Method {
    /// Returns the method with this number.
    #[must_use]
    pub fn of(number: u8) -> Self {
        match number {
            1 => Method::Hardware,
            2 => Method::Software,
            3 => Method::ControlPlane,
            _ => Method::Unknown,
        }
    }
}

/// The numbers of hardware and of software timestamps (RFC 8972, table 9).
pub(super) const HARDWARE: u8 = 1;
pub(super) const SOFTWARE: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> StampKey {
        StampKey::parse(&"42".repeat(32)).unwrap()
    }

    #[test]
    fn the_class_of_service_has_the_bits_of_the_figure() {
        let class = ClassOfService { wanted_dscp: 46, dscp: 34, ecn: 1, refused: true };
        // RFC 8972, figure 14: DSCP1 101110, DSCP2 100010, ECN 01, RP 01, 16 reserved bits.
        assert_eq!(class.encode(), [0b1011_1010, 0b0010_0101, 0, 0]);
        assert_eq!(ClassOfService::decode([0b1011_1010, 0b0010_0101, 0xff, 0xff]), class);
    }

    #[test]
    fn extensions_are_found_until_the_first_that_is_too_long() {
        let area = [0x80, 1, 0, 1, 9, 0x80, 4, 0, 4, 1, 2, 3, 4, 0x80, 99, 0, 9, 1];
        let place = |at, kind, bytes, malformed| Place { at, kind, bytes, malformed };
        let all = [place(0, 1, 1, false), place(5, 4, 4, false), place(13, 99, 9, true)];
        assert_eq!(places(&area), all);
        assert_eq!(all[2].value(area.len()), 17..18);
        // A length that is invalid for its type, and padding with zeros.
        assert_eq!(
            places(&[0, 4, 0, 1, 7, 0, 1, 0, 0]),
            [place(0, 4, 1, true), place(5, 1, 0, false)]
        );
        assert_eq!(places(&[0; 40]), []);
        assert_eq!(places(&[1, 1, 0]), []);
    }

    #[test]
    fn the_hmac_covers_the_number_and_the_extensions_before_it() {
        let mut area = vec![0x80, 4, 0, 4, 1, 2, 3, 4, 0x80, 8, 0, 16];
        area.resize(28, 0);
        area.extend([0x80, 1, 0, 2, 5, 5]);
        sign(&mut area, 7, &key());
        let tag = key().tag(&[&[0, 0, 0, 7, 0x80, 4, 0, 4, 1, 2, 3, 4]]);
        assert_eq!(area[12..28], tag);
        assert!(integrity(&area, 7, Some(&key())));
        assert!(!integrity(&area, 8, Some(&key())));
        assert!(!integrity(&area, 7, None), "nobody can verify it without a key");
        area[4] ^= 1;
        assert!(!integrity(&area, 7, Some(&key())));
        area[4] ^= 1;
        area[29] = 4;
        assert!(!integrity(&area, 7, Some(&key())), "only padding may follow");
    }

    #[test]
    fn with_a_key_only_padding_needs_no_hmac() {
        assert!(integrity(&[], 1, Some(&key())));
        assert!(integrity(&[0x80, 1, 0, 1, 9], 1, Some(&key())));
        assert!(!integrity(&[0x80, 4, 0, 4, 1, 2, 3, 4], 1, Some(&key())));
        assert!(integrity(&[0x80, 4, 0, 4, 1, 2, 3, 4], 1, None));
        let mut short = vec![0x80, 8, 0, 16, 1];
        assert!(!integrity(&short, 1, Some(&key())));
        sign(&mut short, 1, &key());
        assert_eq!(short, [0x80, 8, 0, 16, 1]);
    }
}
