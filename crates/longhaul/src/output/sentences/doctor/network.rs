//! The phrases for network interfaces, their bus and their interrupts.

use super::phrase::{Phrase, case, phrase};

const MTU: &str = "{target_bps} is {packets_per_second} packets per second of {mtu_bytes#} bytes, \
                   and {jumbo_packets_per_second} of {jumbo_bytes#}";
const PACING: &str = "with fq the kernel paces each connection, which keeps bursts out of shallow \
                      queues on the path; without it TCP paces itself by timers, at more cost \
                      (ESnet's guide)";
const RINGS: &str =
    "{receive} to receive (at most {receive_max}), {send} to send (at most {send_max})";
const CORES: &str = "a core receives about {core_gigabits} Gb/s; {target_bps} needs \
                     {wanted_queues}[, and this host has {cores}]";
const BUS: &str = "the link carries {carries_bps} and could carry {could_carry_bps}: a narrower or \
                   older slot, a riser, or a card with a bad contact";

pub(super) const PHRASES: &[Phrase] = &[
    phrase(
        "interface_there",
        "the requested interfaces",
        &[case("missing", "no interface {interfaces}")
            .wanted("the name of an interface of this host")
            .why("it could not be examined")
            .run(&["ip -brief link"])],
    ),
    phrase(
        "state",
        "state",
        &[
            case("up", "up[, {driver}]"),
            case("no_carrier_state", "no carrier state[, {driver}]"),
            case("down", "{state}")
                .wanted("up")
                .why("no packet passes")
                .run(&["sudo ip link set {subject} up"]),
        ],
    ),
    phrase(
        "speed",
        "rate",
        &[
            case("wireless", "a wireless interface without a fixed rate")
                .wanted("a cable")
                .why("its rate and delay vary, and it is shared"),
            case("unreported", "the driver reports no rate")
                .why("the host of a virtual machine determines its rate; measure it")
                .run(&["longhaul test HOST -P 4"]),
            case("rate", "{speed_bps}")
                .wanted("{wanted_bps} or more")
                .why("a transfer is no faster than the card and its switch port")
                .run(&["ethtool {subject}"]),
        ],
    ),
    phrase(
        "mtu",
        "largest packet",
        &[
            case("enough", "{mtu_bytes#} bytes").why(MTU),
            case("small", "{mtu_bytes#} bytes")
                .wanted(
                    "{jumbo_bytes#} bytes, if every switch and router of the path supports them",
                )
                .why(MTU)
                .run(&["sudo ip link set {subject} mtu {jumbo_bytes#}"]),
        ],
    ),
    phrase(
        "queueing",
        "queueing and pacing",
        &[
            case("paced", "{qdisc}[ of {leaf_qdiscs}]"),
            case("not_paced_per_queue", "{qdisc}[ of {leaf_qdiscs}]")
                .wanted("fq (or fq_codel)")
                .why(PACING)
                .run(&["sudo sysctl -w net.core.default_qdisc=fq && sudo tc qdisc replace dev \
                        {subject} root mq"]),
            case("not_paced", "{qdisc}[ of {leaf_qdiscs}]")
                .wanted("fq (or fq_codel)")
                .why(PACING)
                .run(&["sudo tc qdisc replace dev {subject} root fq"]),
        ],
    ),
    phrase(
        "offloads",
        "offloads",
        &[
            case("on", "TSO, GSO, GRO, checksums, scatter-gather on; LRO {lro}"),
            case("off", "off: {off}; LRO {lro}")
                .wanted("on")
                .why(
                    "the kernel handles up to 64 KB at once with them, and {packets_per_second} \
                     packets per second one by one without",
                )
                .run(&["sudo ethtool -K {subject} {switches} on"]),
        ],
    ),
    phrase(
        "rings",
        "rings",
        &[
            case("enough", RINGS),
            case("small", RINGS)
                .wanted("{wanted_receive} and {wanted_send}")
                .why(
                    "at {target_bps} a ring of {receive} fills in {fills_us} us in which the core \
                     does something else; the next packet is lost (ESnet's guide for 100G: \
                     {guide_size}, or the maximum)",
                )
                .run(&["sudo ethtool -G {subject} rx {wanted_receive} tx {wanted_send}"]),
        ],
    ),
    phrase(
        "missed",
        "packets lost in this host",
        &[
            case("none", "none of {received} received"),
            case(
                "lost",
                "{missed} lost for lack of space, {damaged} damaged, of {packets} ({lost_percent})",
            )
            .wanted("none")
            .why(
                "each loss halves or pauses a connection; lost for lack of space: larger rings, \
                 more queues or better placed interrupts; damaged: a cable, plug or optic",
            )
            .run(&["ethtool -S {subject} | grep -iE 'drop|miss|err|discard'"]),
        ],
    ),
    phrase(
        "coalescing",
        "interrupt coalescing",
        &[
            case("adaptive", "adaptive"),
            case("fixed", "{wait_us} us"),
            case("off", "off: one interrupt per packet")
                .wanted("adaptive")
                .why(
                    "at such rates one interrupt per packet leaves no time for the packets \
                     (ESnet's guide for 100G)",
                )
                .run(&["sudo ethtool -C {subject} adaptive-rx on adaptive-tx on"]),
        ],
    ),
    phrase(
        "pause",
        "flow control with the switch",
        &[
            case("on", "on"),
            case("off", "receiving {receiving}, sending {sending}")
                .wanted("on")
                .why(
                    "if the switch and the host can pause each other, a burst causes no loss \
                     (ESnet's guide for 100G); keep it off where a lossless class is configured",
                )
                .run(&["sudo ethtool -A {subject} rx on tx on"]),
        ],
    ),
    phrase(
        "pcie_rate",
        "theoretical maximum",
        &[case("maximum", "{maximum_bps} over {link}")
            .wanted("{wanted_bps} or more")
            .why(
                "{payload_bytes#}/({payload_bytes#}+{overhead_bytes#}) x {encoded_bits}/{line_bits} \
                 x {lanes} lanes x {giga_transfers} GT/s = {maximum_bps}[ (MaxPayload is \
                 unreadable; {assumed_bytes#} assumed)][; {sharers} devices share {target_bps}]",
            )
            .run(&["sudo lspci -vv -s {address}    # another slot, or another card"])],
    ),
    phrase(
        "pcie_link",
        "width and generation",
        &[
            case("full", "{link}"),
            case("fast_enough", "{link}, of {best}").wanted("{best}").why(BUS),
            case("reduced", "{link}")
                .wanted("{best}")
                .why(BUS)
                .run(&["sudo lspci -vv -s {address} | grep -E 'LnkCap|LnkSta'"]),
        ],
    ),
    phrase(
        "pcie_payload",
        "MaxPayload",
        &[
            case("enough", "{payload_bytes#} bytes"),
            case("small", "{payload_bytes#} bytes")
                .wanted("{supported_bytes#} bytes, which the device and every bridge support")
                .why(
                    "payload/(payload+{overhead_bytes#}): {useful_percent} of the bus is useful, \
                     and {possible_percent} would be",
                )
                .run(&["sudo grubby --update-kernel=ALL --args=pci=pcie_bus_perf    # or \
                        GRUB_CMDLINE_LINUX"]),
        ],
    ),
    phrase(
        "pcie_read_request",
        "MaxReadReq",
        &[
            case("enough", "{request_bytes#} bytes"),
            // Bits 14:12 of the device control are the size, 5 for 4096 (pci_regs.h); setpci
            // accepts a mask.
            case("small", "{request_bytes#} bytes")
                .wanted("{wanted_bytes#} bytes")
                .why(
                    "a packet of 9000 bytes is fetched with {requests} requests, and would be with \
                     {wanted_requests}; each waits for memory",
                )
                .run(&["sudo setpci -s {address} CAP_EXP+8.w=5000:7000"]),
        ],
    ),
    phrase(
        "iommu",
        "address translation",
        &[
            case("harmless", "{kind}"),
            case("translated", "{kind}")
                .wanted("identity")
                .why(
                    "the IOMMU translates the address of every buffer; iommu=pt exempts the \
                     host's own devices (ESnet's guide for data-transfer nodes)",
                )
                .run(&["sudo grubby --update-kernel=ALL --args=iommu=pt    # or \
                        GRUB_CMDLINE_LINUX; restart"]),
        ],
    ),
    phrase(
        "interrupt_spread",
        "CPUs of the queues",
        &[
            case("enough", "queues: {queues}, interrupts on CPUs {cpus}"),
            case("few_queues", "queues: {queues}, interrupts on CPUs {cpus}")
                .wanted("{wanted_queues} queues on as many cores")
                .why(CORES)
                .run(&["sudo ethtool -L {subject} combined {possible_queues}"]),
            case("few_cpus", "queues: {queues}, interrupts on CPUs {cpus}")
                .wanted("{wanted_queues} queues on as many cores")
                .why(CORES)
                .run(&[
                    "grep {subject} /proc/interrupts    # then, per interrupt N:",
                    "echo CPU | sudo tee /proc/irq/N/smp_affinity_list",
                ]),
        ],
    ),
    phrase(
        "interrupt_node",
        "NUMA node of the queues",
        &[
            case("near", "node {node} with CPUs {node_cpus}, as are the interrupts")
                .why("longhaul test places its threads there automatically"),
            case("no_node", "the device has no node, and the host has several")
                .why("its position on the bus is unknown; the firmware's tables lack it")
                .run(&["lspci -tv"]),
            case("away", "node {node}; interrupts also on CPUs {away_cpus}")
                .wanted("interrupts on node {node}: CPUs {node_cpus}")
                .why(
                    "each packet crosses from one node's memory to the other's caches (\"make \
                     sure you are using the correct cores\", ESnet's guide for 100G)",
                )
                .run(&[
                    "sudo systemctl stop irqbalance",
                    "for i in /sys/class/net/{subject}/device/msi_irqs/*; do echo {node_cpus} | \
                     sudo tee /proc/irq/${{i##*/}}/smp_affinity_list; done",
                ]),
        ],
    ),
    phrase(
        "irqbalance",
        "interrupt placement",
        &[
            case("runs", "irqbalance"),
            case("off", "irqbalance is not running"),
            case("harmful", "irqbalance runs")
                .wanted("fixed interrupt affinity")
                .why("it moves interrupts between cores and nodes during a transfer")
                .run(&["sudo systemctl disable --now irqbalance"]),
        ],
    ),
    phrase(
        "core_drops",
        "queues of the cores",
        &[
            case("none", "dropped none of {packets}"),
            case("dropped", "dropped {dropped} of {packets} ({dropped_percent})")
                .wanted("none")
                .why("a core's queue of received packets was full")
                .run(&["sudo sysctl -w net.core.netdev_max_backlog='250000'"]),
        ],
    ),
];
