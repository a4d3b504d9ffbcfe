//! Prometheus remote write 1.0: sends the journal of new data to the URL of the operator.
//!
//! The journal in the store has an entry for each new block of samples and each new result. The
//! store also has the position of the last sent entry, so that the hub continues after a restart.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, header};
use longhaul_fleet::protocol::Severity;

use super::protobuf::{TimeSeries, write_request};
use super::{DeliveryError, http};
use crate::clock::{HOUR, SECOND, now_ms};
use crate::hub::Hub;
use crate::records::events::NewEvent;
use crate::records::runs::run_of;
use crate::records::shipments::{
    Claim, Item, Shipment, StoredBlock, advance, block, claim, waiting,
};
use crate::samples::{Kind, Point};
use crate::secret;
use crate::store::{Sql, StoreError};

/// The maximum number of samples of a batch, unless a single entry of the journal has more.
const SAMPLES: usize = 20_000;
/// The maximum number of entries of the journal in a batch.
const ENTRIES: i64 = 500;
/// The limit on one request.
const LIMIT: Duration = Duration::from_secs(30);
/// The time in ms for which one of several hubs that share a database reserves the stream.
const RESERVED_MS: i64 = 60 * SECOND;
/// The pause without new entries.
const IDLE: Duration = Duration::from_secs(2);
/// The pauses after failures: they double up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

const PROTOBUF: [(HeaderName, &str); 3] = [
    (header::CONTENT_TYPE, "application/x-protobuf"),
    (header::CONTENT_ENCODING, "snappy"),
    (HeaderName::from_static("x-prometheus-remote-write-version"), "0.1.0"),
];

/// The reason of a pause of the stream.
enum Pause {
    Store(StoreError),
    Receiver(DeliveryError),
}

impl From<StoreError> for Pause {
    fn from(error: StoreError) -> Self {
        Pause::Store(error)
    }
}

/// Sends the journal to `url` until the future is dropped.
pub(crate) async fn stream(hub: Arc<Hub>, url: String) {
    let name = secret::hash(&url).chars().take(16).collect::<String>();
    let owner = owner(&hub.instance);
    let mut pause = SHORTEST_PAUSE;
    loop {
        match send_batch(&hub, &url, (&name, owner)).await {
            Ok(more) => {
                pause = SHORTEST_PAUSE;
                if !more {
                    tokio::time::sleep(IDLE).await;
                }
            }
            Err(failure) => {
                match failure {
                    Pause::Store(error) => hub.log.store_failure(&error),
                    Pause::Receiver(failure) => {
                        let reason = failure.reason;
                        hub.log.note("remote_write", &format!("remote write: {reason}"));
                    }
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Returns the number of a hub, which a restart keeps, so that the hub continues at once.
fn owner(instance: &str) -> i64 {
    let hash = secret::hash(instance);
    hash.bytes().take(8).fold(0, |number, byte| (number << 8) | i64::from(byte))
}

/// Sends the next entries of the journal. Returns false if there are none, or another hub has the
/// stream.
async fn send_batch(hub: &Hub, url: &str, (name, owner): (&str, i64)) -> Result<bool, Pause> {
    let (claimed, now) = (name.to_owned(), now_ms());
    let take = move |sql: &mut dyn Sql| claim(sql, &claimed, (owner, now, now + RESERVED_MS));
    let Claim::Granted { position } = hub.store.write(take).await? else { return Ok(false) };
    let Some(batch) = hub.store.read(move |sql| batch(sql, position)).await? else {
        return Ok(false);
    };
    let refused = deliver(hub, url, &batch.series).await.map_err(Pause::Receiver)?;
    let (name, position) = (name.to_owned(), batch.position);
    hub.store.write(move |sql| advance(sql, &name, position)).await?;
    if let Some(reason) = refused {
        hub.record(vec![refusal(url, &reason)]).await?;
    }
    Ok(true)
}

/// Sends series. If the receiver refuses a request, its halves are sent, so that one bad series
/// does not hold back the others. Returns the reason of the last refused series.
async fn deliver(
    hub: &Hub,
    url: &str,
    series: &[TimeSeries],
) -> Result<Option<String>, DeliveryError> {
    let headers = PROTOBUF;
    let mut refused = None;
    let mut waiting = vec![series];
    while let Some(part) = waiting.pop().filter(|part| !part.is_empty()) {
        let body = snap::raw::Encoder::new().compress_vec(&write_request(part));
        let body = body.map_err(DeliveryError::forever)?;
        let sent = tokio::time::timeout(LIMIT, http::post(&hub.outgoing_tls, url, &headers, body));
        match sent.await {
            Err(_) => return Err(DeliveryError::for_now("no answer in time")),
            Ok(Ok(())) => {}
            Ok(Err(failure)) if !failure.permanent => return Err(failure),
            Ok(Err(failure)) if part.len() == 1 => refused = Some(failure.reason),
            Ok(Err(_)) => {
                let (first, second) = part.split_at(part.len() / 2);
                waiting.extend([second, first]);
            }
        }
    }
    Ok(refused)
}

fn refusal(url: &str, reason: &str) -> NewEvent {
    let now = now_ms();
    NewEvent {
        at_ms: now,
        severity: Severity::Info,
        kind: "remote_write_refused".to_owned(),
        subject: "remote write".to_owned(),
        // Every viewer can read it, and the path can have a secret.
        message: format!("the receiver {} refused samples: {reason}", http::origin(url)),
        // One event per hour, which counts its repetitions.
        origin: format!("remote_write_refused/{}", now / HOUR),
    }
}

/// The samples of several entries of the journal.
struct Batch {
    series: Vec<TimeSeries>,
    /// The position of the last of them.
    position: i64,
}

/// Reads the entries after a position; `None` if there are none.
fn batch(sql: &mut dyn Sql, position: i64) -> Result<Option<Batch>, StoreError> {
    let entries = waiting(sql, position, ENTRIES)?;
    if entries.is_empty() {
        return Ok(None);
    }
    let mut batch = Batch { series: Vec::new(), position };
    let mut samples = 0;
    for entry in entries {
        let new = series_of(sql, &entry)?;
        let more: usize = new.iter().map(|one| one.samples.len()).sum();
        if samples > 0 && samples + more > SAMPLES {
            break;
        }
        samples += more;
        batch.series.extend(new);
        batch.position = entry.position;
    }
    Ok(Some(batch))
}

/// Returns the samples of an entry; none if the data were removed meanwhile.
fn series_of(sql: &mut dyn Sql, entry: &Shipment) -> Result<Vec<TimeSeries>, StoreError> {
    match &entry.item {
        Item::Block { series, start_ms } => Ok(block(sql, *series, *start_ms)?
            .map(|found| block_series(&found))
            .unwrap_or_default()),
        Item::Run { run } => {
            let Some(run) = run_of(sql, run)? else { return Ok(Vec::new()) };
            let at_ms = run.ended_ms.unwrap_or(run.window_end_ms);
            #[allow(clippy::cast_precision_loss)]
            let values = [
                ("longhaul_run_throughput_bits_per_second", run.throughput_bps.map(|n| n as f64)),
                ("longhaul_run_loss_ratio", run.loss),
                ("longhaul_run_rtt_seconds", run.rtt_ms.map(|ms| ms / 1000.0)),
                ("longhaul_run_mtu_bytes", run.mtu.map(f64::from)),
            ];
            let series = |(name, value): (&str, Option<f64>)| {
                let labels = vec![
                    ("__name__", name.to_owned()),
                    ("destination", run.destination.clone()),
                    ("kind", run.kind.as_str().to_owned()),
                    ("source", run.source.clone()),
                    ("test", run.test.clone()),
                ];
                Some(TimeSeries { labels, samples: vec![(at_ms, value?)] })
            };
            Ok(values.into_iter().filter_map(series).collect())
        }
    }
}

/// The names of the metrics of a kind of series, and their factors to base units.
fn metrics(kind: Kind) -> &'static [(&'static str, f64)] {
    match kind {
        Kind::Interface => &[
            ("longhaul_interface_receive_bits_per_second", 1.0),
            ("longhaul_interface_transmit_bits_per_second", 1.0),
            ("longhaul_interface_receive_packets_per_second", 1.0),
            ("longhaul_interface_transmit_packets_per_second", 1.0),
            ("longhaul_interface_receive_drops_per_second", 1.0),
            ("longhaul_interface_transmit_drops_per_second", 1.0),
            ("longhaul_interface_receive_errors_per_second", 1.0),
            ("longhaul_interface_transmit_errors_per_second", 1.0),
        ],
        Kind::Queue => &[
            ("longhaul_interface_queue_bytes", 1.0),
            ("longhaul_interface_queue_packets", 1.0),
            ("longhaul_interface_queue_drops_per_second", 1.0),
        ],
        Kind::Host => &[
            ("longhaul_tcp_sent_segments_per_second", 1.0),
            ("longhaul_tcp_retransmitted_segments_per_second", 1.0),
            ("longhaul_tcp_connections", 1.0),
            ("longhaul_cpu_busy_ratio", 1.0),
            ("longhaul_cpu_max_busy_ratio", 1.0),
            ("longhaul_cpu_softirq_ratio", 1.0),
            ("longhaul_cpu_max_softirq_ratio", 1.0),
            ("longhaul_cpu_steal_ratio", 1.0),
        ],
        Kind::Stamp => &[
            ("longhaul_stamp_loss_ratio", 1.0),
            ("longhaul_stamp_forward_loss_ratio", 1.0),
            ("longhaul_stamp_reverse_loss_ratio", 1.0),
            ("longhaul_stamp_rtt_min_seconds", 1e-3),
            ("longhaul_stamp_rtt_p50_seconds", 1e-3),
            ("longhaul_stamp_rtt_p99_seconds", 1e-3),
            ("longhaul_stamp_rtt_max_seconds", 1e-3),
            ("longhaul_stamp_forward_p50_seconds", 1e-3),
            ("longhaul_stamp_reverse_p50_seconds", 1e-3),
            ("longhaul_stamp_clock_error_seconds", 1e-3),
        ],
    }
}

fn block_series(block: &StoredBlock) -> Vec<TimeSeries> {
    let other = match block.kind {
        Kind::Interface | Kind::Queue => Some("interface"),
        Kind::Stamp => Some("peer"),
        Kind::Host => None,
    };
    let series = |(at, (metric, factor)): (usize, &(&str, f64))| {
        let value = |point: &Point| Some((point.end_ms, point.values.get(at).copied()?? * factor));
        let mut labels = vec![("__name__", (*metric).to_owned()), ("host", block.host.clone())];
        labels.extend(other.map(|other| (other, block.name.clone())));
        TimeSeries { labels, samples: block.points.iter().filter_map(value).collect() }
    };
    let all = metrics(block.kind).iter().enumerate().map(series);
    all.filter(|series| !series.samples.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_and_missing_values_have_no_samples() {
        for kind in Kind::ALL {
            assert_eq!(metrics(kind).len(), kind.metrics().len());
        }
        let mut values = vec![None; 10];
        values[4] = Some(12.5);
        let points = [Point { start_ms: 0, end_ms: 1000, values }];
        let (host, name) = ("a".to_owned(), "b".to_owned());
        let series =
            block_series(&StoredBlock { kind: Kind::Stamp, host, name, points: points.to_vec() });
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].samples, [(1000, 0.0125)]);
        assert!(series[0].labels.is_sorted(), "the protocol requires sorted labels");
    }
}
