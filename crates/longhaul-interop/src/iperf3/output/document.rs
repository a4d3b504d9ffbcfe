//! The JSON documents of iperf3: `--json` and the events of `--json-stream`.

use std::time::UNIX_EPOCH;

use longhaul_core::plan::Direction;
use longhaul_core::result::{End, TestSample};
use serde_json::{Map, Value, json};

use super::figures::{
    StreamFigures, interval_packets, is_udp, micros, per_second, percent, socket_of, span,
};
use super::{Finished, FinishedHalf, IPERF3_VERSION, Started};

/// Returns the `start` of a document.
pub fn start_document(started: &Started, system: &str) -> Value {
    let Started { parameters, plan, .. } = started;
    let connected = started.connected.iter().enumerate().map(|(index, stream)| {
        json!({
            "socket": socket_of(index),
            "local_host": stream.local.ip().to_canonical().to_string(),
            "local_port": stream.local.port(),
            "remote_host": stream.remote.ip().to_canonical().to_string(),
            "remote_port": stream.remote.port(),
        })
    });
    let seconds = started.time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let peer = if started.at_client { "connecting_to" } else { "accepted_connection" };
    let mut document = json!({
        "connected": connected.collect::<Vec<_>>(),
        "version": format!("iperf {IPERF3_VERSION}"),
        "system_info": system,
        "timestamp": { "time": http_time(seconds), "timesecs": seconds },
        peer: { "host": started.host, "port": started.port },
        "cookie": started.cookie,
        "target_bitrate": parameters.bandwidth,
        "fq_rate": parameters.fqrate,
        "sock_bufsize": parameters.window,
        "test_start": {
            "protocol": if is_udp(plan) { "UDP" } else { "TCP" },
            "num_streams": parameters.parallel,
            "blksize": plan.write_bytes.get(),
            "omit": parameters.omit,
            "duration": parameters.time,
            "bytes": parameters.num,
            "blocks": parameters.blockcount,
            "reverse": u8::from(parameters.reverse),
            "tos": parameters.tos,
            "target_bitrate": parameters.bandwidth,
            "bidir": u8::from(parameters.bidirectional),
            "fqrate": parameters.fqrate,
            "interval": plan.interval.as_secs_f64(),
        },
    });
    for (name, text) in [("title", &parameters.title), ("extra_data", &parameters.extra_data)] {
        if let Some(text) = text {
            document[name] = json!(text);
        }
    }
    document
}

/// Returns one of the `intervals`: the samples of all directions at one time, with the roles of
/// this end.
pub fn interval_document(started: &Started, samples: &[(End, &TestSample)]) -> Value {
    let mut streams = Vec::new();
    let mut document = Map::new();
    let each = started.plan.streams as usize;
    for (number, (role, sample)) in samples.iter().enumerate() {
        let first = number * each;
        streams.extend((0..sample.streams.len()).map(|stream| {
            let mut object = interval_stream(started, *role, sample, stream);
            object["socket"] = json!(socket_of(first + stream));
            object
        }));
        let name = if sample.reverse { "sum_bidir_reverse" } else { "sum" };
        document.insert(name.to_owned(), interval_sum(started, *role, sample));
    }
    document.insert("streams".to_owned(), json!(streams));
    Value::Object(document)
}

/// Returns the fields that all spans of time have.
fn timed(span: (f64, f64), bytes: u64, role: End, omitted: bool) -> Value {
    let seconds = span.1 - span.0;
    json!({
        "start": span.0,
        "end": span.1,
        "seconds": seconds,
        "bytes": bytes,
        "bits_per_second": 8.0 * per_second(bytes, seconds),
        "omitted": omitted,
        "sender": role == End::Sender,
    })
}

fn interval_stream(started: &Started, role: End, sample: &TestSample, number: usize) -> Value {
    let plan = &started.plan;
    let stream = &sample.streams[number];
    let mut object = timed(span(plan, sample), stream.bytes.get(), role, sample.omitted);
    if is_udp(plan) {
        let (packets, lost) = interval_packets(plan, sample, number);
        object["packets"] = json!(packets);
        if role == End::Receiver {
            object["jitter_ms"] = json!(stream.udp.and_then(|udp| udp.jitter_ms).unwrap_or(0.0));
            object["lost_packets"] = json!(lost);
            object["lost_percent"] = json!(percent(lost, packets));
        }
    } else if let Some(tcp) = &stream.sender {
        object["retransmits"] = json!(tcp.retransmits);
        object["snd_cwnd"] = json!(tcp.cwnd_bytes.get());
        object["snd_wnd"] = json!(tcp.peer_window_bytes.get());
        object["rtt"] = json!(micros(tcp.rtt_ms));
        object["rttvar"] = json!(micros(tcp.rtt_variation_ms));
    }
    object
}

fn interval_sum(started: &Started, role: End, sample: &TestSample) -> Value {
    let plan = &started.plan;
    let mut sum = timed(span(plan, sample), sample.bytes.get(), role, sample.omitted);
    if is_udp(plan) {
        let all = (0..sample.streams.len()).map(|number| interval_packets(plan, sample, number));
        let (packets, lost) = all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        sum["packets"] = json!(packets);
        if role == End::Receiver {
            sum["jitter_ms"] = json!(sample.udp.and_then(|udp| udp.jitter_ms).unwrap_or(0.0));
            sum["lost_packets"] = json!(lost);
            sum["lost_percent"] = json!(percent(lost, packets));
        }
    } else if let Some(retransmits) = sample.retransmits {
        sum["retransmits"] = json!(retransmits);
    }
    sum
}

/// Returns the `end` of a document.
pub fn end_document(finished: &Finished) -> Value {
    let plan = &finished.started.plan;
    let mut document = Map::new();
    let mut streams = Vec::new();
    for half in &finished.halves {
        let figures = finished.streams(half);
        let suffix = if half.reverse { "_bidir_reverse" } else { "" };
        let mut add = |name: &str, value| document.insert(format!("{name}{suffix}"), value);
        if is_udp(plan) {
            streams.extend(figures.iter().map(|stream| udp_stream(half, stream)));
            let total = |end| udp_sum(half, &figures, end);
            add("sum", udp_total(half, &figures));
            add("sum_sent", total(End::Sender));
            add("sum_received", total(End::Receiver));
        } else {
            streams.extend(figures.iter().map(|stream| tcp_stream(half, stream)));
            add("sum_sent", tcp_sum(half, &figures, End::Sender));
            add("sum_received", tcp_sum(half, &figures, End::Receiver));
        }
    }
    document.insert("streams".to_owned(), json!(streams));
    cpu(finished, &mut document);
    Value::Object(document)
}

fn tcp_stream(half: &FinishedHalf, stream: &StreamFigures<'_>) -> Value {
    let of = |end| {
        let (bytes, seconds) = stream.moved(end);
        let mut object = timed((0.0, seconds), bytes, half.role, false);
        object["socket"] = json!(stream.socket);
        without_omitted(object)
    };
    let mut sender = of(End::Sender);
    if let Some(retransmits) = stream.retransmits() {
        let [least, mean, most] = stream.rtts();
        sender["retransmits"] = json!(retransmits);
        sender["max_snd_cwnd"] = json!(stream.most(|tcp| tcp.cwnd_bytes.get()));
        sender["max_snd_wnd"] = json!(stream.most(|tcp| tcp.peer_window_bytes.get()));
        sender["max_rtt"] = json!(most);
        sender["min_rtt"] = json!(least);
        sender["mean_rtt"] = json!(mean);
    }
    json!({ "sender": sender, "receiver": of(End::Receiver) })
}

fn tcp_sum(half: &FinishedHalf, streams: &[StreamFigures<'_>], end: End) -> Value {
    let (bytes, seconds) = total(streams, end);
    let mut sum = without_omitted(timed((0.0, seconds), bytes, half.role, false));
    let retransmits: Option<u64> = streams.iter().map(StreamFigures::retransmits).sum();
    if let (End::Sender, Some(retransmits)) = (end, retransmits) {
        sum["retransmits"] = json!(retransmits);
    }
    sum
}

fn udp_stream(half: &FinishedHalf, stream: &StreamFigures<'_>) -> Value {
    let (bytes, seconds) = stream.moved(End::Sender);
    let (lost, reordered) = stream.lost();
    let sent = stream.packets(End::Sender);
    let packets = if sent > 0 { sent } else { stream.packets(End::Receiver) };
    let mut object = without_omitted(timed((0.0, seconds), bytes, half.role, false));
    object["socket"] = json!(stream.socket);
    object["jitter_ms"] = json!(stream.jitter_ms());
    object["lost_packets"] = json!(lost);
    object["packets"] = json!(packets);
    object["lost_percent"] = json!(percent(lost, packets));
    object["out_of_order"] = json!(reordered);
    json!({ "udp": object })
}

fn udp_sum(half: &FinishedHalf, streams: &[StreamFigures<'_>], end: End) -> Value {
    let (bytes, seconds) = total(streams, end);
    let packets: u64 = streams.iter().map(|stream| stream.packets(end)).sum();
    let mut sum = without_omitted(timed((0.0, seconds), bytes, half.role, false));
    let received = end == End::Receiver;
    let lost: u64 = if received { streams.iter().map(|s| s.lost().0).sum() } else { 0 };
    sum["jitter_ms"] = json!(if received { mean_jitter(streams) } else { 0.0 });
    sum["lost_packets"] = json!(lost);
    sum["packets"] = json!(packets);
    sum["lost_percent"] = json!(percent(lost, packets));
    sum["sender"] = json!(!received);
    sum
}

/// Returns the sum that mixes both ends: the sender's bytes and datagrams, the receiver's losses.
fn udp_total(half: &FinishedHalf, streams: &[StreamFigures<'_>]) -> Value {
    let (bytes, _) = total(streams, End::Sender);
    let (_, seconds) = total(streams, End::Receiver);
    let sent: u64 = streams.iter().map(|stream| stream.packets(End::Sender)).sum();
    let lost: u64 = streams.iter().map(|stream| stream.lost().0).sum();
    let mut sum = without_omitted(timed((0.0, seconds), bytes, half.role, false));
    sum["jitter_ms"] = json!(mean_jitter(streams));
    sum["lost_packets"] = json!(lost);
    sum["packets"] = json!(sent);
    sum["lost_percent"] = json!(percent(lost, sent));
    sum
}

fn mean_jitter(streams: &[StreamFigures<'_>]) -> f64 {
    streams.iter().map(StreamFigures::jitter_ms).sum::<f64>() / streams.len().max(1) as f64
}

fn total(streams: &[StreamFigures<'_>], end: End) -> (u64, f64) {
    let moved = streams.iter().map(|stream| stream.moved(end));
    moved.fold((0, 0.0), |(bytes, seconds), one| (bytes + one.0, f64::max(seconds, one.1)))
}

fn without_omitted(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("omitted");
    }
    object
}

fn cpu(finished: &Finished, document: &mut Map<String, Value>) {
    let seconds = finished.halves.iter().map(|half| half.ours.seconds).fold(0.0, f64::max);
    let ours: f64 = finished.halves.iter().map(|half| half.ours.cpu_seconds).sum();
    let ours = if seconds > 0.0 { 100.0 * ours / seconds } else { 0.0 };
    let theirs = &finished.theirs;
    let value = json!({
        "host_total": ours,
        "host_user": 0.0,
        "host_system": ours,
        "remote_total": theirs.cpu_total,
        "remote_user": theirs.cpu_user,
        "remote_system": theirs.cpu_system,
    });
    document.insert("cpu_utilization_percent".to_owned(), value);
    let own = finished.halves.iter().find_map(|half| half.ours.streams.first());
    let own = own.map(|stream| stream.congestion.clone()).filter(|name| !name.is_empty());
    let other = theirs.congestion.clone();
    let sends = finished.halves.last().is_some_and(|half| half.role == End::Sender);
    let (sender, receiver) = if sends { (own, other) } else { (other, own) };
    for (name, value) in [("sender_tcp_congestion", sender), ("receiver_tcp_congestion", receiver)]
    {
        if let Some(value) = value.filter(|_| !is_udp(&finished.started.plan)) {
            document.insert(name.to_owned(), json!(value));
        }
    }
}

/// Returns the whole document of `--json`.
pub fn whole_document(finished: &Finished, system: &str) -> Value {
    let most = finished.halves.iter().map(|half| half.samples.len()).max().unwrap_or(0);
    let intervals = (0..most).map(|number| {
        let samples = finished.halves.iter();
        let samples: Vec<_> =
            samples.filter_map(|h| Some((h.role, h.samples.get(number)?))).collect();
        interval_document(&finished.started, &samples)
    });
    let mut document = json!({
        "start": start_document(&finished.started, system),
        "intervals": intervals.collect::<Vec<_>>(),
        "end": end_document(finished),
    });
    let both = finished.started.plan.direction == Direction::Both;
    if both && let Some(output) = &finished.theirs.server_output_text {
        document["server_output_text"] = json!(output);
    }
    if let Some(output) = &finished.theirs.server_output_json {
        document["server_output_json"] = output.clone();
    }
    document
}

/// Returns a time as in HTTP: `Sun, 22 Nov 2026 18:40:00 GMT`.
fn http_time(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar from the days since 1970, with years that begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    let year = year_of_era + era * 400 + u64::from(month < 2);
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(http_time(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_time(1_795_372_800), "Sun, 22 Nov 2026 18:40:00 GMT");
        assert_eq!(http_time(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    }
}
