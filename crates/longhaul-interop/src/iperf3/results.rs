//! The results that both ends exchange after a test.

use serde::Serialize;
use serde_json::Value;

use crate::error::Fault;

/// The longest results that an end accepts: 256 streams need 60 KB.
pub const MOST_RESULTS: u32 = 256 << 10;
/// The longest results with the output of the server, which has a line per stream and interval.
pub(super) const MOST_RESULTS_WITH_OUTPUT: u32 = 16 << 20;

/// The results of one end. The order of the fields is that of the document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// The CPU time of the program in percent of one core: total, user and system.
    #[serde(rename = "cpu_util_total")]
    pub cpu_total: f64,
    /// See `cpu_total`.
    #[serde(rename = "cpu_util_user")]
    pub cpu_user: f64,
    /// See `cpu_total`.
    #[serde(rename = "cpu_util_system")]
    pub cpu_system: f64,
    /// 1 if this end counts its own retransmits, 0 if not, -1 if it receives.
    pub sender_has_retransmits: i64,
    /// The congestion control of the end.
    #[serde(rename = "congestion_used", skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// The output of the server as a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_json: Option<Value>,
    /// The output of the server as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_text: Option<String>,
    /// The streams.
    pub streams: Vec<StreamResults>,
}

/// The results of one end of a stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamResults {
    /// The number of the stream; see [`stream_id`](super::state::stream_id).
    pub id: i64,
    /// The bytes after the omitted time.
    pub bytes: u64,
    /// The retransmitted segments; -1 if they are unknown.
    pub retransmits: i64,
    /// The jitter in seconds.
    pub jitter: f64,
    /// The lost datagrams as iperf3 counts them.
    pub errors: i64,
    /// The part of `errors` in the omitted time (since 3.14).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted_errors: Option<i64>,
    /// The number of the last datagram, from 1.
    pub packets: i64,
    /// The part of `packets` in the omitted time (since 3.14).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted_packets: Option<i64>,
    /// The start in seconds (since 3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<f64>,
    /// The end in seconds (since 3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<f64>,
}

impl Results {
    /// Reads the document of the other end.
    ///
    /// # Errors
    /// A required field is missing or out of range, or there are more than `most_streams` streams.
    pub fn read(document: &Value, most_streams: usize) -> Result<Self, Fault> {
        let text = |name: &str| document[name].as_str().map(ToOwned::to_owned);
        let streams = document["streams"].as_array().ok_or(Fault::Field("streams"))?;
        if streams.len() > most_streams {
            return Err(Fault::Field("streams"));
        }
        Ok(Results {
            cpu_total: share(document, "cpu_util_total")?,
            cpu_user: share(document, "cpu_util_user")?,
            cpu_system: share(document, "cpu_util_system")?,
            sender_has_retransmits: number(document, "sender_has_retransmits")?,
            congestion: text("congestion_used"),
            server_output_json: document.get("server_output_json").cloned(),
            server_output_text: text("server_output_text"),
            streams: streams.iter().map(StreamResults::read).collect::<Result<_, _>>()?,
        })
    }
}

impl StreamResults {
    fn read(document: &Value) -> Result<Self, Fault> {
        let bytes = number(document, "bytes")?;
        Ok(StreamResults {
            id: number(document, "id")?,
            bytes: u64::try_from(bytes).map_err(|_| Fault::Field("bytes"))?,
            retransmits: number(document, "retransmits")?,
            jitter: share(document, "jitter")?,
            errors: number(document, "errors")?,
            omitted_errors: document["omitted_errors"].as_i64(),
            packets: number(document, "packets")?,
            omitted_packets: document["omitted_packets"].as_i64(),
            start_time: document["start_time"].as_f64(),
            end_time: document["end_time"].as_f64(),
        })
    }
}

/// Returns a required whole number. Some versions write it as a fraction, and -1 as 2^64 - 1.
fn number(document: &Value, name: &'static str) -> Result<i64, Fault> {
    let value = &document[name];
    let unsigned = || value.as_u64().map(|number| number as i64);
    let fraction = || match value.as_f64()? {
        n if n.abs() < 9e15 => Some(n as i64),
        n if (1.8e19..1.85e19).contains(&n) => Some(-1),
        _ => None,
    };
    value.as_i64().or_else(unsigned).or_else(fraction).ok_or(Fault::Field(name))
}

/// Returns a required number that is not negative.
fn share(document: &Value, name: &'static str) -> Result<f64, Fault> {
    let value = document[name].as_f64().filter(|value| (0.0..=1e12).contains(value));
    value.ok_or(Fault::Field(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({
            "cpu_util_total": 1.5, "cpu_util_user": 0.5, "cpu_util_system": 1.0,
            "sender_has_retransmits": -1,
            "streams": [{
                "id": 1, "bytes": 1e9, "retransmits": -1, "jitter": 0, "errors": 0, "packets": 0
            }]
        })
    }

    #[test]
    fn results_of_the_oldest_version_have_no_times() {
        let results = Results::read(&document(), 1).unwrap();
        assert_eq!(results.streams[0].bytes, 1_000_000_000);
        assert_eq!(results.streams[0].end_time, None);
        let mut unsigned = document();
        for minus_one in [json!(u64::MAX), json!(1.8446744073709552e19)] {
            unsigned["sender_has_retransmits"] = minus_one;
            assert_eq!(Results::read(&unsigned, 1).unwrap().sender_has_retransmits, -1);
        }
    }

    #[test]
    fn a_missing_field_is_named_and_streams_are_counted() {
        for name in ["cpu_util_total", "sender_has_retransmits", "streams"] {
            let mut without = document();
            without.as_object_mut().unwrap().remove(name);
            assert_eq!(Results::read(&without, 1), Err(Fault::Field(name)));
        }
        for (name, value) in [("id", json!("1")), ("bytes", json!(-1)), ("jitter", json!(-0.1))] {
            let mut wrong = document();
            wrong["streams"][0][name] = value;
            assert_eq!(Results::read(&wrong, 1), Err(Fault::Field(name)));
        }
        assert_eq!(Results::read(&document(), 0), Err(Fault::Field("streams")));
    }
}
