//! The conversion between the results of iperf3 and those of longhaul.

use longhaul_core::plan::{Protocol, TestPlan};
use longhaul_core::result::{
    DatagramReport, End, SideReport, SideResult, SideStream, SideStreamReport, UdpCounts,
};
use longhaul_core::units::Bytes;

use super::results::{Results, StreamResults};
use super::state::stream_id;
use crate::error::Fault;

/// Returns the results that an end sends, from the results of its directions in the order of their
/// streams.
pub(super) fn results(plan: &TestPlan, halves: &[(End, &SideResult)]) -> Results {
    let seconds = halves.iter().map(|(_, side)| side.seconds).fold(0.0, f64::max);
    let cpu_seconds: f64 = halves.iter().map(|(_, side)| side.cpu_seconds).sum();
    let cpu = if seconds > 0.0 { 100.0 * cpu_seconds / seconds } else { 0.0 };
    let streams = halves.iter().flat_map(|(role, side)| side.streams.iter().map(|s| (*role, s)));
    let streams: Vec<_> = streams
        .enumerate()
        .map(|(n, (role, stream))| stream_results(plan, n, role, stream))
        .collect();
    let sends_tcp =
        plan.protocol != Protocol::Udp && halves.iter().any(|(role, _)| *role == End::Sender);
    let sends = halves.iter().any(|(role, _)| *role == End::Sender);
    let congestion = halves.iter().find_map(|(_, side)| side.streams.first());
    Results {
        cpu_total: cpu,
        // The threads' clocks do not distinguish user and system time.
        cpu_user: 0.0,
        cpu_system: cpu,
        sender_has_retransmits: if sends { sends_tcp.into() } else { -1 },
        congestion: congestion.map(|s| s.congestion.clone()).filter(|name| !name.is_empty()),
        server_output_json: None,
        server_output_text: None,
        streams,
    }
}

fn stream_results(plan: &TestPlan, index: usize, role: End, stream: &SideStream) -> StreamResults {
    let udp = stream.udp.unwrap_or_default();
    // Versions before 3.14 subtract the omitted datagrams that they have counted themselves.
    let omitted = stream.total_bytes.get().saturating_sub(stream.bytes.get());
    let omitted = if stream.udp.is_some() { omitted / plan.write_bytes.get().max(1) } else { 0 };
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let sends_tcp = role == End::Sender && stream.udp.is_none();
    StreamResults {
        id: stream_id(index),
        bytes: stream.bytes.get(),
        retransmits: if sends_tcp { count(stream.retransmits) } else { -1 },
        jitter: if role == End::Receiver { udp.jitter_ms / 1e3 } else { 0.0 },
        errors: if role == End::Receiver { count(errors(&udp)) } else { 0 },
        omitted_errors: Some(0),
        packets: count(udp.expected + omitted),
        omitted_packets: Some(count(omitted)),
        start_time: Some(0.0),
        end_time: Some(stream.seconds),
    }
}

/// Returns the lost datagrams as iperf3 counts them: a gap counts as lost, and every datagram with
/// an older number, including a duplicate, subtracts one.
fn errors(udp: &UdpCounts) -> u64 {
    let taken_back = udp.duplicated.saturating_add(udp.late);
    udp.expected.saturating_sub(udp.datagrams).saturating_sub(taken_back)
}

/// Returns the report of the peer as `role`, about streams from the index `first` on.
///
/// # Errors
/// The peer reports other streams.
pub(super) fn peer_side(
    plan: &TestPlan,
    results: &Results,
    role: End,
    first: usize,
    ours: &SideResult,
) -> Result<SideReport, Fault> {
    let mut streams = Vec::new();
    for (offset, our_stream) in ours.streams.iter().enumerate() {
        let id = stream_id(first + offset);
        let found = results.streams.iter().find(|stream| stream.id == id);
        let stream = found.ok_or(Fault::NoStream(id))?;
        streams.push(peer_stream(plan, results, role, stream, our_stream));
    }
    let seconds = streams.iter().map(|stream| stream.seconds).fold(0.0, f64::max);
    Ok(SideReport {
        seconds,
        cpu_percent: Some(results.cpu_total),
        streams,
        curve: None,
        limits: None,
    })
}

/// Checks that the peer reports no stream that does not exist.
///
/// # Errors
/// The number of such a stream.
pub(super) fn check_ids(results: &Results, streams: usize) -> Result<(), Fault> {
    let ids: Vec<i64> = (0..streams).map(stream_id).collect();
    let strange = results.streams.iter().find(|stream| !ids.contains(&stream.id));
    strange.map_or(Ok(()), |stream| Err(Fault::NoStream(stream.id)))
}

fn peer_stream(
    plan: &TestPlan,
    results: &Results,
    role: End,
    stream: &StreamResults,
    ours: &SideStream,
) -> SideStreamReport {
    // Before 3.2 an end reports no time; both ends count for the same time.
    let reported = stream.start_time.zip(stream.end_time).map(|(start, end)| end - start);
    let seconds = reported.filter(|seconds| (0.0..=1e9).contains(seconds) && *seconds > 0.0);
    let counts_retransmits =
        role == End::Sender && results.sender_has_retransmits == 1 && stream.retransmits >= 0;
    let bytes = Bytes::new(stream.bytes);
    SideStreamReport {
        bytes,
        // The protocol has no mark at the end of the data: bytes in flight count at one end only.
        total_bytes: None,
        seconds: seconds.unwrap_or(ours.seconds),
        retransmits: counts_retransmits.then(|| stream.retransmits.unsigned_abs()),
        congestion: match role {
            End::Sender => results.congestion.clone().unwrap_or_default(),
            End::Receiver => String::new(),
        },
        udp: (plan.protocol == Protocol::Udp).then(|| datagrams(plan, role, stream, ours)),
        ..SideStreamReport::default()
    }
}

/// Returns the datagrams of the peer's end of a stream.
fn datagrams(
    plan: &TestPlan,
    role: End,
    stream: &StreamResults,
    ours: &SideStream,
) -> DatagramReport {
    let length = plan.write_bytes.get().max(1);
    let after_omit = |all: i64, omitted: Option<i64>| {
        let known = plan.omit.is_zero() || omitted.is_some();
        known.then(|| u64::try_from(all - omitted.unwrap_or(0)).unwrap_or(0))
    };
    let packets = after_omit(stream.packets, stream.omitted_packets);
    let errors = after_omit(stream.errors, stream.omitted_errors);
    // All datagrams have the same length.
    let counted = stream.bytes / length;
    match role {
        End::Sender => DatagramReport {
            datagrams: counted,
            expected: packets.or(Some(counted)),
            ..DatagramReport::default()
        },
        End::Receiver => {
            let received = packets.zip(errors).map(|(packets, lost)| packets.saturating_sub(lost));
            // Datagrams after the last one that the receiver has seen may have arrived after the end
            // of its count, so they are not lost.
            let sent = ours.udp.map(|udp| udp.expected);
            DatagramReport {
                datagrams: received.unwrap_or(counted).min(counted.max(1)),
                expected: packets.or(sent),
                jitter_ms: Some(stream.jitter * 1e3),
                ..DatagramReport::default()
            }
        }
    }
}

/// Returns the range of versions that the results of a server show.
pub(super) fn version_of(results: &Results) -> Option<String> {
    if let Some(stated) = &results.server_output_json
        && let Some(version) = stated["start"]["version"].as_str()
    {
        return Some(version.trim_start_matches("iperf ").to_owned());
    }
    let stream = results.streams.first()?;
    Some(match (stream.start_time, stream.omitted_packets) {
        (None, _) => "3.1 or older".to_owned(),
        (Some(_), None) => "3.2 to 3.13".to_owned(),
        (Some(_), Some(_)) => "3.14 or later".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(udp: Option<UdpCounts>) -> SideResult {
        let stream = SideStream {
            bytes: Bytes::new(1000),
            total_bytes: Bytes::new(1000),
            seconds: 2.0,
            retransmits: 3,
            udp,
            ..SideStream::default()
        };
        SideResult { seconds: 2.0, streams: vec![stream], ..SideResult::default() }
    }

    #[test]
    fn a_receiver_states_losses_as_iperf3_counts_them() {
        let udp = UdpCounts {
            datagrams: 90,
            expected: 100,
            duplicated: 3,
            reordered: 5,
            jitter_ms: 0.5,
            ..UdpCounts::default()
        };
        let plan = TestPlan { protocol: Protocol::Udp, ..TestPlan::new() };
        let sent = results(&plan, &[(End::Receiver, &side(Some(udp)))]);
        let stream = &sent.streams[0];
        assert_eq!((stream.errors, stream.packets, stream.jitter), (7, 100, 0.0005));
        assert_eq!((sent.sender_has_retransmits, stream.retransmits), (-1, -1));
    }

    #[test]
    fn a_peer_reports_what_its_protocol_carries_and_nothing_else() {
        let plan = TestPlan::new();
        let ours = side(None);
        let theirs = results(&plan, &[(End::Sender, &ours)]);
        let report = peer_side(&plan, &theirs, End::Sender, 0, &ours).unwrap();
        assert_eq!(report.streams[0].retransmits, Some(3));
        assert_eq!((report.streams[0].rtt_ms, report.streams[0].mss), (None, None));
        let receiver = peer_side(&plan, &theirs, End::Receiver, 0, &ours).unwrap();
        assert_eq!(receiver.streams[0].retransmits, None);
        assert_eq!(peer_side(&plan, &theirs, End::Sender, 1, &ours), Err(Fault::NoStream(3)));
        assert_eq!(check_ids(&theirs, 1), Ok(()));
        assert_eq!(check_ids(&theirs, 0), Err(Fault::NoStream(1)));
    }

    #[test]
    fn datagrams_after_the_end_of_the_count_are_not_lost() {
        let plan =
            TestPlan { protocol: Protocol::Udp, write_bytes: Bytes::new(100), ..TestPlan::new() };
        let sent = UdpCounts { datagrams: 12, expected: 12, ..UdpCounts::default() };
        let counts = UdpCounts { datagrams: 10, expected: 10, ..UdpCounts::default() };
        let theirs = results(&plan, &[(End::Receiver, &side(Some(counts)))]);
        let report = peer_side(&plan, &theirs, End::Receiver, 0, &side(Some(sent))).unwrap();
        let udp = report.streams[0].udp.unwrap();
        assert_eq!((udp.datagrams, udp.expected, udp.late), (10, Some(10), None));
    }
}
