//! The extensions of requests and replies, as the sender writes and reads them.

use super::key::{StampKey, TAG_BYTES};
use super::time::Timestamp;
use super::tlv::{
    ClassOfService, FAILED, HEADER_BYTES, Method, Place, UNRECOGNIZED, integrity, kind, places,
    sign,
};

/// The extensions that a sender requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedExtensions {
    /// True to request the traffic class, counters and times.
    pub information: bool,
    /// The DSCP of the replies.
    pub dscp: u8,
    /// The number of packets sent so far, including this one.
    pub sent: u32,
    /// The bytes of the whole packet after the base packet; the rest is padding.
    pub bytes: usize,
}

/// The bytes of the extensions with information: class, timestamps, counters and follow-up.
const INFORMATION_BYTES: usize = 4 * HEADER_BYTES + 4 + 4 + 12 + 16;

impl RequestedExtensions {
    /// Returns the bytes of the extensions without padding.
    #[must_use]
    pub fn min_bytes(information: bool, authenticated: bool) -> usize {
        let hmac = if authenticated { HEADER_BYTES + TAG_BYTES } else { 0 };
        if information { INFORMATION_BYTES + hmac } else { 0 }
    }

    /// Appends the extensions to `packet`, a base packet with this sequence number.
    pub fn append(&self, packet: &mut Vec<u8>, sequence: u32, key: Option<&StampKey>) {
        let start = packet.len();
        let mut put = |kind: u8, value: &[u8]| {
            packet.extend([UNRECOGNIZED, kind]);
            packet.extend((value.len() as u16).to_be_bytes());
            packet.extend(value);
        };
        if self.information {
            let class = ClassOfService { wanted_dscp: self.dscp, ..ClassOfService::default() };
            put(kind::CLASS, &class.encode());
            put(kind::TIMESTAMPS, &[0; 4]);
            let mut counters = [0; 12];
            counters[..4].copy_from_slice(&self.sent.to_be_bytes());
            put(kind::COUNTERS, &counters);
            put(kind::FOLLOW_UP, &[0; 16]);
            if key.is_some() {
                put(kind::HMAC, &[0; TAG_BYTES]);
            }
        }
        let missing = (start + self.bytes).saturating_sub(packet.len());
        if missing >= HEADER_BYTES {
            packet.extend([UNRECOGNIZED, kind::PADDING]);
            packet.extend(((missing - HEADER_BYTES) as u16).to_be_bytes());
        }
        packet.resize(packet.len().max(start + self.bytes), 0);
        if let Some(key) = key {
            sign(&mut packet[start..], sequence, key);
        }
    }
}

/// The sources of the reflector's timestamps (RFC 8972, section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSources {
    /// The source of the clock (RFC 8972, table 7): 1 NTP, 2 PTP, 3 SSU/BITS, 4 satellites, 5 a
    /// local clock.
    pub clock: u8,
    /// The method of the receive timestamp.
    pub received: Method,
    /// The method of the timestamp of the reply.
    pub replied: Method,
}

/// The counters of the direct measurement extension (RFC 8972, section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// The packets that the reflector received in this session.
    pub received: u32,
    /// The packets that it sent.
    pub replied: u32,
}

/// The time at which an earlier reply left (RFC 8972, section 4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowUp {
    /// The reflector's sequence number of that reply.
    pub sequence: u32,
    /// The time at which it left.
    pub time: Timestamp,
}

/// The information in the extensions of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyExtensions {
    /// The traffic class of the request.
    pub class: Option<ClassOfService>,
    /// The sources of the timestamps.
    pub sources: Option<TimeSources>,
    /// The counters.
    pub counters: Option<Counters>,
    /// The time of an earlier reply.
    pub follow_up: Option<FollowUp>,
}

/// The integrity check of the extensions failed, at the reflector or here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unverified;

impl ReplyExtensions {
    /// Reads `area`, the bytes after the base packet of the reply with this sequence number.
    ///
    /// # Errors
    /// The reflector could not verify the extensions, or this end cannot.
    pub fn read(area: &[u8], sequence: u32, key: Option<&StampKey>) -> Result<Self, Unverified> {
        let places = places(area);
        if places.iter().any(|place| area[place.at] & FAILED != 0) {
            return Err(Unverified);
        }
        if !integrity(area, sequence, key) {
            return Err(Unverified);
        }
        let mut answers = ReplyExtensions::default();
        for place in places {
            if place.malformed || area[place.at] & super::tlv::MALFORMED != 0 {
                break;
            }
            if area[place.at] & UNRECOGNIZED == 0 {
                answers.take(place, &area[place.value(area.len())]);
            }
        }
        Ok(answers)
    }

    fn take(&mut self, place: Place, value: &[u8]) {
        let number = |at: usize| {
            let bytes = value.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
        };
        match place.kind {
            kind::CLASS => self.class = value.first_chunk().copied().map(ClassOfService::decode),
            kind::TIMESTAMPS => {
                self.sources =
                    value.first_chunk().map(|[clock, received, _, replied]| TimeSources {
                        clock: *clock,
                        received: Method::of(*received),
                        replied: Method::of(*replied),
                    });
            }
            kind::COUNTERS => {
                self.counters = Some(Counters { received: number(4), replied: number(8) });
            }
            kind::FOLLOW_UP => {
                let time = u64::from(number(4)) << 32 | u64::from(number(8));
                let found = FollowUp { sequence: number(0), time: Timestamp(time) };
                // A reflector without a follow-up zeros the fields.
                self.follow_up = (time != 0).then_some(found);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_bytes_of_the_standard() {
        let mut packet = Vec::new();
        let wanted =
            RequestedExtensions { information: true, dscp: 46, sent: 0x0102_0304, bytes: 60 };
        wanted.append(&mut packet, 1, None);
        let expected = [
            &[0x80, 4, 0, 4, 46 << 2, 0, 0, 0][..],
            &[0x80, 3, 0, 4, 0, 0, 0, 0],
            &[0x80, 5, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x80, 7, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x80, 1, 0, 4, 0, 0, 0, 0],
        ];
        assert_eq!(packet, expected.concat());
        assert_eq!(RequestedExtensions::min_bytes(true, false), 52);
        assert_eq!(RequestedExtensions::min_bytes(true, true), 72);
        let mut bare = vec![7];
        RequestedExtensions { bytes: 2, ..RequestedExtensions::default() }
            .append(&mut bare, 1, None);
        assert_eq!(bare, [7, 0, 0], "too short for a header");
    }

    #[test]
    fn an_echo_of_the_request_answers_nothing() {
        // A reflector without RFC 8972 copies the extensions as padding, with the U flag set.
        let mut packet = Vec::new();
        RequestedExtensions { information: true, dscp: 1, sent: 1, bytes: 0 }.append(
            &mut packet,
            1,
            None,
        );
        assert_eq!(ReplyExtensions::read(&packet, 1, None), Ok(ReplyExtensions::default()));
        assert_eq!(ReplyExtensions::read(&[], 1, None), Ok(ReplyExtensions::default()));
    }

    #[test]
    fn answers_are_read_up_to_a_malformed_extension() {
        let area = [
            &[0, 4, 0, 4, 46 << 2 | 2, 0x2c, 0, 0][..],
            &[0, 3, 0, 4, 1, 2, 1, 1],
            &[0, 5, 0, 12, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 7],
            &[0, 7, 0, 16, 0, 0, 0, 6, 0, 0, 0, 5, 0, 0, 0, 4, 2, 0, 0, 0],
        ]
        .concat();
        let found = ReplyExtensions::read(&area, 1, None).unwrap();
        let class = ClassOfService { wanted_dscp: 46, dscp: 34, ecn: 3, refused: false };
        assert_eq!(found.class, Some(class));
        let sources =
            TimeSources { clock: 1, received: Method::Software, replied: Method::Hardware };
        assert_eq!(found.sources, Some(sources));
        assert_eq!(found.counters, Some(Counters { received: 8, replied: 7 }));
        let time = Timestamp(5 << 32 | 4);
        assert_eq!(found.follow_up, Some(FollowUp { sequence: 6, time }));
        let mut marked = area.clone();
        marked[8] = 0x40;
        let found = ReplyExtensions::read(&marked, 1, None).unwrap();
        assert_eq!((found.class, found.sources, found.counters), (Some(class), None, None));
        marked[16] = 0x20;
        assert_eq!(ReplyExtensions::read(&marked, 1, None), Err(Unverified));
        assert_eq!(
            ReplyExtensions::read(&area, 1, StampKey::parse(&"00".repeat(16)).ok().as_ref()),
            Err(Unverified)
        );
    }
}
