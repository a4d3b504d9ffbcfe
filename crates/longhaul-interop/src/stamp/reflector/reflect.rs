//! The extensions of a reply, written over those of the request (RFC 8972, section 4).

use super::super::extensions::Counters;
use super::super::key::StampKey;
use super::super::time::Timestamp;
use super::super::tlv::{
    ClassOfService, FAILED, HARDWARE, MALFORMED, Place, SOFTWARE, UNRECOGNIZED, integrity, kind,
    places, required_bytes,
};

/// The lowest DSCP that only requests with the same DSCP get: CS6 and above are the network's own
/// (RFC 4594, section 3.2).
const NETWORK_CONTROL: u8 = 48;

/// Sources of a clock (RFC 8972, table 7). The kernel does not know by which protocol a program
/// synchronizes it, so NTP stands for all.
const NTP: u8 = 1;
const LOCAL_CLOCK: u8 = 5;

/// The facts that a reply states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Facts {
    /// The traffic class of the request.
    pub(super) class: u8,
    /// True if the clock is synchronized.
    pub(super) synchronised: bool,
    /// The counters of the session; `None` without a session.
    pub(super) counters: Option<Counters>,
    /// The departure of an earlier reply.
    pub(super) follow_up: Option<EarlierReply>,
    /// True if the network interface measured the arrival of the request.
    pub(super) received_by_hardware: bool,
}

/// An earlier reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EarlierReply {
    /// Its number.
    pub(super) sequence: u32,
    /// The time of its departure.
    pub(super) time: Timestamp,
    /// True if the network interface measured the time.
    pub(super) by_hardware: bool,
}

/// The consequences of the extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reflected {
    /// True if their integrity was verified or they have no HMAC.
    pub(super) verified: bool,
    /// The DSCP of the reply that the request wants.
    pub(super) dscp: Option<u8>,
    /// True if the request asks for the times of replies.
    pub(super) follow_up: bool,
}

/// Writes the answers to the extensions in `area`, the bytes after the base packet of the request
/// with number `sequence`. The HMAC remains that of the request.
pub(super) fn reflect(
    area: &mut [u8],
    sequence: u32,
    key: Option<&StampKey>,
    facts: &Facts,
) -> Reflected {
    let verified = integrity(area, sequence, key);
    let mut reflected = Reflected { verified, ..Reflected::default() };
    for place in places(area) {
        let unknown = if required_bytes(place.kind).is_none() { UNRECOGNIZED } else { 0 };
        if !verified {
            area[place.at] = unknown | FAILED;
            continue;
        }
        area[place.at] = unknown;
        let value = place.value(area.len());
        if place.malformed {
            area[place.at] |= MALFORMED;
            if place.kind == kind::FOLLOW_UP {
                area[value].fill(0);
            }
            break;
        }
        fill(&mut area[value], place, facts, &mut reflected);
    }
    reflected
}

/// Writes the answer of one extension.
fn fill(value: &mut [u8], place: Place, facts: &Facts, reflected: &mut Reflected) {
    match (place.kind, facts.counters) {
        (kind::CLASS, _) => {
            let wanted = value
                .first_chunk()
                .copied()
                .map_or(0, |value| ClassOfService::decode(value).wanted_dscp);
            let (dscp, ecn) = (facts.class >> 2, facts.class & 3);
            let refused = wanted >= NETWORK_CONTROL && wanted != dscp;
            reflected.dscp = (!refused).then_some(wanted);
            let answer = ClassOfService { wanted_dscp: wanted, dscp, ecn, refused };
            value.copy_from_slice(&answer.encode());
        }
        (kind::TIMESTAMPS, _) => {
            let clock = if facts.synchronised { NTP } else { LOCAL_CLOCK };
            let received = if facts.received_by_hardware { HARDWARE } else { SOFTWARE };
            // The reply states its own time before it leaves.
            value.copy_from_slice(&[clock, received, clock, SOFTWARE]);
        }
        (kind::COUNTERS, Some(Counters { received, replied })) => {
            value[4..8].copy_from_slice(&received.to_be_bytes());
            value[8..].copy_from_slice(&replied.to_be_bytes());
        }
        (kind::COUNTERS, None) => value[4..].fill(0),
        (kind::FOLLOW_UP, _) => {
            reflected.follow_up = true;
            value.fill(0);
            if let Some(EarlierReply { sequence, time, by_hardware }) = facts.follow_up {
                value[..4].copy_from_slice(&sequence.to_be_bytes());
                value[4..12].copy_from_slice(&time.0.to_be_bytes());
                value[12] = if by_hardware { HARDWARE } else { SOFTWARE };
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        class: 34 << 2 | 3,
        synchronised: true,
        counters: Some(Counters { received: 8, replied: 7 }),
        follow_up: Some(EarlierReply {
            sequence: 6,
            time: Timestamp(0x0102_0304_0506_0708),
            by_hardware: false,
        }),
        received_by_hardware: false,
    };

    fn reflected(mut area: Vec<u8>) -> (Vec<u8>, Reflected) {
        let found = reflect(&mut area, 1, None, &FACTS);
        (area, found)
    }

    #[test]
    fn every_known_extension_is_answered_in_place() {
        let area = [
            &[0x80, 4, 0, 4, 46 << 2, 0, 0, 0][..],
            &[0x80, 3, 0, 4, 0, 0, 0, 0],
            &[0x80, 5, 0, 12, 0, 0, 0, 9, 1, 1, 1, 1, 2, 2, 2, 2],
            &[0x80, 7, 0, 16, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
            &[0x80, 77, 0, 1, 3],
            &[0x80, 1, 0, 1, 9],
        ];
        let answers = [
            &[0, 4, 0, 4, 46 << 2 | 2, 0x2c, 0, 0][..],
            &[0, 3, 0, 4, 1, 2, 1, 2],
            &[0, 5, 0, 12, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 7],
            &[0, 7, 0, 16, 0, 0, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0],
            &[0x80, 77, 0, 1, 3],
            &[0, 1, 0, 1, 9],
        ];
        let (area, found) = reflected(area.concat());
        assert_eq!(area, answers.concat());
        assert_eq!(found, Reflected { verified: true, dscp: Some(46), follow_up: true });
    }

    #[test]
    fn a_stateless_reflector_has_no_counters_and_no_follow_up() {
        let mut area = [
            &[0x80, 5, 0, 12, 0, 0, 0, 9, 1, 1, 1, 1, 2, 2, 2, 2][..],
            &[0x80, 7, 0, 16, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
            &[0x80, 3, 0, 4, 0, 0, 0, 0],
        ]
        .concat();
        reflect(&mut area, 1, None, &Facts::default());
        assert_eq!(area[..16], [0, 5, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((area[16], &area[20..36]), (0, &[0; 16][..]));
        assert_eq!(area[36..], [0, 3, 0, 4, 5, 2, 5, 2], "the clock is not synchronised");
    }

    #[test]
    fn the_classes_of_the_network_are_refused() {
        let wanting = |dscp: u8| vec![0x80, 4, 0, 4, dscp << 2, 0, 0, 0];
        let (area, found) = reflected(wanting(56));
        assert_eq!((found.dscp, area[5] & 1), (None, 1));
        let (area, found) = reflected(wanting(34));
        assert_eq!((found.dscp, area[5] & 1), (Some(34), 0));
        let mut area = wanting(56);
        let found = reflect(&mut area, 1, None, &Facts { class: 56 << 2, ..FACTS });
        assert_eq!(found.dscp, Some(56));
    }

    #[test]
    fn a_malformed_extension_ends_the_answers() {
        let (area, _) =
            reflected([&[0x80, 4, 0, 3, 1, 2, 3][..], &[0x80, 3, 0, 4, 9, 9, 9, 9]].concat());
        assert_eq!(area, [0x40, 4, 0, 3, 1, 2, 3, 0x80, 3, 0, 4, 9, 9, 9, 9]);
        let (area, _) = reflected(vec![0x80, 7, 0, 16, 9, 9]);
        assert_eq!(area, [0x40, 7, 0, 16, 0, 0]);
    }

    #[test]
    fn extensions_that_cannot_be_verified_are_returned_unread() {
        let key = StampKey::parse(&"42".repeat(16)).unwrap();
        let mut area = vec![0x80, 4, 0, 4, 46 << 2, 0, 0, 0, 0x80, 77, 0, 0];
        let found = reflect(&mut area, 1, Some(&key), &FACTS);
        assert_eq!(found, Reflected::default());
        assert_eq!(area, [0x20, 4, 0, 4, 46 << 2, 0, 0, 0, 0xa0, 77, 0, 0]);
    }

    #[test]
    fn padding_of_twamp_light_is_unchanged() {
        assert_eq!(reflected(vec![0; 27]).0, vec![0; 27]);
    }
}
