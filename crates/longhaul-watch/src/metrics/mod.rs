//! The metrics for Prometheus: the text of a sample, and the server of the text.

mod server;

use std::fmt::Write;

use longhaul_core::text::escape;

use crate::sample::{CoreSample, InterfaceSample, Sample};

pub use server::{DEFAULT_PORT, MetricsServer};

/// A metric of each interface: its name without prefix, its type, its help, and its value.
type InterfaceMetric =
    (&'static str, &'static str, &'static str, fn(&InterfaceSample) -> Option<f64>);

/// A metric of each core: its name, its help, and its value.
type CoreMetric = (&'static str, &'static str, fn(&CoreSample) -> f64);

/// Names follow the conventions of Prometheus: base units, `_total` for counters.
const INTERFACES: [InterfaceMetric; 13] = [
    ("receive_bytes_total", "counter", "Bytes received.", |one| Some(one.totals.in_bytes as f64)),
    ("transmit_bytes_total", "counter", "Bytes sent.", |one| Some(one.totals.out_bytes as f64)),
    ("receive_packets_total", "counter", "Packets received.", |one| {
        Some(one.totals.in_packets as f64)
    }),
    ("transmit_packets_total", "counter", "Packets sent.", |one| {
        Some(one.totals.out_packets as f64)
    }),
    ("receive_drops_total", "counter", "Received packets that were dropped.", |one| {
        Some(one.totals.in_drops as f64)
    }),
    ("transmit_drops_total", "counter", "Outgoing packets that were dropped.", |one| {
        Some(one.totals.out_drops as f64)
    }),
    ("receive_errors_total", "counter", "Packets received with errors.", |one| {
        Some(one.totals.in_errors as f64)
    }),
    ("transmit_errors_total", "counter", "Errors on transmission.", |one| {
        Some(one.totals.out_errors as f64)
    }),
    ("up", "gauge", "1 if the interface is enabled and its link is up.", |one| {
        Some(if one.running { 1.0 } else { 0.0 })
    }),
    ("speed_bytes", "gauge", "Rate of the link in bytes per second.", |one| {
        one.speed.map(|rate| rate.bps() as f64 / 8.0)
    }),
    ("queue_bytes", "gauge", "Bytes in the queueing discipline.", |one| {
        one.queue.map(|queue| f64::from(queue.bytes))
    }),
    ("queue_packets", "gauge", "Packets in the queueing discipline.", |one| {
        one.queue.map(|queue| f64::from(queue.packets))
    }),
    ("queue_drops_total", "counter", "Packets that the queueing discipline dropped.", |one| {
        one.queue.map(|queue| f64::from(queue.drops))
    }),
];

/// Returns the metrics of `sample`. Flows are not included: their labels would be unbounded.
pub fn metrics_text(sample: &Sample) -> String {
    let mut text = String::new();
    for (name, kind, help, value) in INTERFACES {
        let name = format!("longhaul_network_{name}");
        head(&mut text, &name, kind, help);
        for interface in &sample.interfaces {
            let Some(value) = value(interface) else { continue };
            let _ = writeln!(text, "{name}{{device=\"{}\"}} {value}", label(&interface.name));
        }
    }
    let tcp = &sample.tcp.totals;
    let host: [(&str, &str, &str, u64); 4] = [
        ("longhaul_tcp_sent_segments_total", "counter", "TCP segments sent.", tcp.segments_out),
        (
            "longhaul_tcp_received_segments_total",
            "counter",
            "TCP segments received.",
            tcp.segments_in,
        ),
        (
            "longhaul_tcp_retransmitted_segments_total",
            "counter",
            "TCP segments retransmitted.",
            tcp.retransmits,
        ),
        ("longhaul_tcp_connections", "gauge", "Established TCP connections.", tcp.established),
    ];
    for (name, kind, help, value) in host {
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "{name} {value}");
    }
    cores(&mut text, &sample.cores);
    text
}

fn cores(text: &mut String, cores: &[CoreSample]) {
    let metrics: [CoreMetric; 3] = [
        ("longhaul_cpu_busy_seconds_total", "Time in which the core was busy.", |core| {
            core.totals.busy.as_secs_f64()
        }),
        ("longhaul_cpu_softirq_seconds_total", "Softirq time of the core.", |core| {
            core.totals.softirq.as_secs_f64()
        }),
        ("longhaul_cpu_steal_seconds_total", "Stolen time of the core.", |core| {
            core.totals.stolen.as_secs_f64()
        }),
    ];
    for (name, help, value) in metrics {
        head(text, name, "counter", help);
        for core in cores {
            let _ = writeln!(text, "{name}{{cpu=\"{}\"}} {}", core.core, value(core));
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Escapes the value of a label.
fn label(value: &str) -> String {
    escape(value).replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;
    use longhaul_sys::host::TcpCounters;
    use longhaul_sys::traffic::LinkCounters;

    use super::*;
    use crate::sample::TcpTotals;

    #[test]
    fn each_metric_has_a_type_and_hostile_names_stay_labels() {
        let interface = InterfaceSample {
            index: 2,
            name: "e\"} 9\n\\x".into(),
            running: true,
            loopback: false,
            speed: Some(Rate::from_bps(10_000_000_000)),
            totals: LinkCounters { in_bytes: u64::from(u32::MAX) * 16, ..LinkCounters::default() },
            change: None,
            queue: None,
            queue_drops: None,
        };
        let sample = Sample {
            time_ms: 0,
            span: None,
            interfaces: vec![interface],
            tcp: TcpTotals { totals: TcpCounters::default(), sent: None, retransmits: None },
            cores: Vec::new(),
            flows: None,
        };
        let text = metrics_text(&sample);
        let bytes =
            "longhaul_network_receive_bytes_total{device=\"e\\\"} 9%0A\\\\x\"} 68719476720\n";
        assert!(text.contains(bytes), "{text}");
        assert!(
            text.contains("longhaul_network_speed_bytes{device=\"e\\\"} 9%0A\\\\x\"} 1250000000\n")
        );
        assert!(!text.contains("longhaul_network_queue_bytes{"), "no queue is no zero");
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        for line in &lines {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(text.contains(&format!("# TYPE {name} ")), "{line}");
        }
        assert!(lines.len() >= 14 && text.ends_with('\n'));
    }
}
