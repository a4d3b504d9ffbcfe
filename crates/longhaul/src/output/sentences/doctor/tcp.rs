//! The phrases for paths, windows and TCP.

use super::phrase::{Phrase, case, phrase};

/// Joins the arithmetic of a window and the part of one rule.
macro_rules! windows {
    ($more:literal) => {
        concat!(
            "{target_bps} x {target_rtt_ms} / 8 = {bdp_bytes} in flight[, over at least \
             {connections} connections, since one window ends at 1 GiB: {window_bytes} each]; ",
            $more
        )
    };
}

/// Joins the loss that CUBIC tolerates and the part of one case.
macro_rules! tolerated {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            "CUBIC holds {target_bps} over {target_rtt_ms} while fewer than one segment in \
             {tolerated_loss} is lost (RFC 9438, 5.1)",
            $after
        )
    };
}

const BUFFER: &str = "{buffer_bytes#} ({buffer_bytes})";
const THIRD: &str = "{wanted_bytes#} ({wanted_bytes}) or more, as the third number";
const ASKED: &str = windows!(
    "a program that sets its buffers (-w) gets no more than this, {reached_bps} per connection, \
     and UDP has no other buffers"
);
const BBR: &str = "longhaul cp uses BBR if the path loses packets and the kernel allows it";
const MEMORY: &str = "{target_bps} x {target_rtt_ms} / 8 = {bdp_bytes}, twice for the kernel's \
                      overhead, in buffers of all connections";
const SACK: &str = "without them each loss costs a round trip, and received data are retransmitted";
const TIMESTAMPS: &str = "sequence numbers repeat after {wrap_ms}; time stamps distinguish old \
                          segments from new ones, and measure the round trip (RFC 7323)";
const SCALING: &str = "without it a window ends at 64 KiB: {reached_bps}";

pub(super) const PHRASES: &[Phrase] = &[
    phrase(
        "path_route",
        "the route to the host",
        &[
            case("routed", "{address} by {interface}"),
            case("no_address", "{unseen}")
                .wanted("an address")
                .why("the name cannot be resolved")
                .run(&["getent hosts {subject}"]),
            case("no_route", "{address}: {unseen}")
                .wanted("a route")
                .why("there is no route for packets to it")
                .run(&["ip route get {address}"]),
        ],
    ),
    phrase(
        "path_answer",
        "the round-trip time to the host",
        &[
            case("open", "{rtt_ms}, port {port} is open").why("the time until a connection opened"),
            case("closed", "{rtt_ms}, port {port} is closed")
                .wanted("longhaul serve or ssh on that host")
                .why("the time until a connection was refused; no server for tests runs there")
                .run(&["longhaul serve    # on that host"]),
            case("silent", "{unseen}")
                .why(
                    "the round-trip time is not measured; nothing answers on the port, or a \
                     firewall drops the packets",
                )
                .run(&["longhaul serve -p {port}    # on that host"]),
        ],
    ),
    phrase(
        "path_mtu",
        "the route's MTU",
        &[
            case("same", "{mtu_bytes#} bytes"),
            case(
                "smaller",
                "{mtu_bytes#} bytes, while {interface} supports {interface_mtu_bytes#}",
            )
            .wanted("{interface_mtu_bytes#} bytes")
            .why(
                "the limit was configured, or a router on the path reported it (path MTU \
                     discovery)",
            )
            .run(&["ip route get {subject}"]),
        ],
    ),
    phrase(
        "tcp_rmem",
        "receive buffers, autotuned",
        &[case("size", BUFFER)
            .wanted(THIRD)
            .why(windows!(
                "about half of a buffer is window: one connection receives about {reached_bps}"
            ))
            .run(&["sudo sysctl -w net.ipv4.tcp_rmem='{least_bytes#} {initial_bytes#} \
                    {wanted_bytes#}'"])],
    ),
    phrase(
        "tcp_wmem",
        "send buffers, autotuned",
        &[case("size", BUFFER)
            .wanted(THIRD)
            .why(windows!(
                "data in flight stay in the buffer, beside unsent data: one connection sends at \
                 most {reached_bps}, and about half of it with both"
            ))
            .run(&["sudo sysctl -w net.ipv4.tcp_wmem='{least_bytes#} {initial_bytes#} \
                    {wanted_bytes#}'"])],
    ),
    phrase(
        "rmem_max",
        "receive buffers, requested",
        &[case("size", BUFFER)
            .wanted("{wanted_bytes#} ({wanted_bytes}) or more")
            .why(ASKED)
            .run(&["sudo sysctl -w net.core.rmem_max='{wanted_bytes#}'"])],
    ),
    phrase(
        "wmem_max",
        "send buffers, requested",
        &[case("size", BUFFER)
            .wanted("{wanted_bytes#} ({wanted_bytes}) or more")
            .why(ASKED)
            .run(&["sudo sysctl -w net.core.wmem_max='{wanted_bytes#}'"])],
    ),
    phrase(
        "tcp_moderate_rcvbuf",
        "autotuning of receive buffers",
        &[
            case("on", "on").wanted("on"),
            case("off", "off")
                .wanted("on")
                .why("receive buffers keep their initial size")
                .run(&["sudo sysctl -w net.ipv4.tcp_moderate_rcvbuf='1'"]),
        ],
    ),
    phrase(
        "tcp_window_scaling",
        "windows over 64 KiB",
        &[
            case("on", "on").wanted("on").why(SCALING),
            case("off", "off")
                .wanted("on")
                .why(SCALING)
                .run(&["sudo sysctl -w net.ipv4.tcp_window_scaling='1'"]),
        ],
    ),
    phrase(
        "tcp_mem",
        "memory for all of TCP",
        &[
            case("size", "pressure from {pressure_bytes} on")
                .wanted("{wanted_bytes} or more")
                .why(MEMORY)
                .run(&["sudo sysctl -w net.ipv4.tcp_mem='{wanted_low_pages} {wanted_pages} \
                        {wanted_high_pages}'"]),
            case("little_memory", "pressure from {pressure_bytes} on")
                .wanted("{wanted_bytes} or more")
                .why(
                    "{target_bps} x {target_rtt_ms} / 8 = {bdp_bytes}, twice for the kernel's \
                     overhead, in buffers of all connections; this host has {memory_bytes} of \
                     memory and needs more for this target",
                ),
        ],
    ),
    phrase(
        "tcp_memory_now",
        "TCP's memory in use",
        &[
            case("no_pressure", "{used_bytes} in use, no pressure"),
            case("pressure", "{used_bytes} in use, under pressure")
                .wanted("no pressure")
                .why(
                    "the kernel keeps the window of every connection small until memory is freed; \
                     connections with much unsent data hold it",
                )
                .run(&["ss -tmn | sort -k2 -n | tail"]),
        ],
    ),
    phrase(
        "congestion",
        "congestion control",
        &[
            case("bbr", "{name}").why(tolerated!("paced by the delivered rate; ", "")),
            case("cubic", "{name}").why(tolerated!("", "; BBR tolerates more loss")),
            case("htcp", "{name}").why("designed for long fast paths"),
            case("other", "{name}")
                .wanted("bbr or cubic")
                .why(tolerated!(
                    "{name} is not made for windows of {window_segments} segments; ",
                    ""
                ))
                .run(&["sudo sysctl -w net.ipv4.tcp_congestion_control='cubic'"]),
        ],
    ),
    phrase(
        "bbr_available",
        "BBR, for lossy paths",
        &[
            case("allowed", "loaded, and allowed for all users"),
            case("not_loaded", "not loaded")
                .wanted("loaded")
                .why(BBR)
                .run(&["sudo modprobe tcp_bbr"]),
            case("root_only", "only root may use it; others: {allowed}")
                .wanted("allowed for all users")
                .why(BBR)
                .run(&["sudo sysctl -w net.ipv4.tcp_allowed_congestion_control='{allowed} bbr'"]),
        ],
    ),
    phrase(
        "tcp_sack",
        "selective acknowledgements",
        &[
            case("on", "on").why(SACK),
            case("off", "off")
                .wanted("on")
                .why(SACK)
                .run(&["sudo sysctl -w net.ipv4.tcp_sack='1'"]),
        ],
    ),
    phrase(
        "tcp_timestamps",
        "time stamps",
        &[
            case("on", "on").why(TIMESTAMPS),
            case("off", "off")
                .wanted("on")
                .why(TIMESTAMPS)
                .run(&["sudo sysctl -w net.ipv4.tcp_timestamps='1'"]),
        ],
    ),
    phrase(
        "tcp_mtu_probing",
        "path MTU probing",
        &[
            case("on", "on"),
            case("off_small_packets", "off, and no packet is over 1500 bytes"),
            case("off", "off")
                .wanted("1")
                .why(
                    "if a router drops packets of more than 1500 bytes and its ICMP message is lost, \
                     connections hang; probing finds the size that passes (RFC 4821; ESnet's \
                     guide)",
                )
                .run(&["sudo sysctl -w net.ipv4.tcp_mtu_probing='1'"]),
        ],
    ),
    phrase(
        "tcp_slow_start_after_idle",
        "slow start after a pause",
        &[
            case("off", "off"),
            case("on_short_path", "on"),
            case("on", "on")
                .wanted("off")
                .why(
                    "after a pause a connection repeats slow start: {round_trips} round trips or {lost_ms} \
                     from 10 to {window_segments} segments",
                )
                .run(&["sudo sysctl -w net.ipv4.tcp_slow_start_after_idle='0'"]),
        ],
    ),
    phrase(
        "tcp_no_metrics_save",
        "metrics of earlier connections",
        &[
            case("harmless", "they do not shorten slow start"),
            case("kept", "kept")
                .wanted("1")
                .why(
                    "after a connection that lost packets, the next ones to the same host leave slow \
                     start early",
                )
                .run(&["sudo sysctl -w net.ipv4.tcp_no_metrics_save='1'"]),
        ],
    ),
    phrase(
        "default_qdisc",
        "queueing of new interfaces",
        &[
            case("fq", "{qdisc}").why("paces each connection"),
            case("fq_codel", "{qdisc}").why("separates connections; TCP paces itself"),
            case("other", "{qdisc}")
                .wanted("fq (or fq_codel)")
                .why(
                    "fq paces each connection, so that bursts do not overflow the queues of the \
                     path (ESnet's guide)",
                )
                .run(&["sudo sysctl -w net.core.default_qdisc='fq'"]),
        ],
    ),
    phrase(
        "loopback_tcp",
        "TCP in this host, measured",
        &[
            case("enough", "{measured_bps}, {note}"),
            case("slow", "{measured_bps}, {note}")
                .wanted("{target_bps} or more")
                .why(
                    "both ends of one connection ran on this host; {target_bps} / {measured_bps} = \
                     {connections} connections, if there are cores for them",
                )
                .run(&["longhaul test HOST -P {connections}"]),
        ],
    ),
];
