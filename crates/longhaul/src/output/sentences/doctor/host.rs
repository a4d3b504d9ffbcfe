//! The phrases for processors, disks and the system.

use super::phrase::{Case, Phrase, case, phrase};

const CORE: &[Case] = &[case("rate", "{measurement}: {measured_bps}")
    .wanted("no more than half of {cores} cores")
    .why("{target_bps} / {measured_bps} = {busy_cores} cores busy with only that")
    .run(&["longhaul cp --cleartext ...    # verified, but not encrypted"])];
const DISK: &[Case] = &[case("rate", "{measurement}: {measured_bps}, {note}")
    .wanted("{target_bps} or more")
    .why("no copy is faster than its disk: {disks} of these suffice, as a RAID without parity")
    .run(&["longhaul cp /dev/zero --size 64G far:/dev/null    # the path without disks"])];
const FILES: &str = "a server accepts 1024 connections, and copies of many files hold some \
                     hundreds open";
const LOCKED: &str = "tools with RDMA, or with io_uring before Linux 5.12, lock their buffers; \
                      longhaul locks none";
const FULL: &str = "at {target_bps} it is full after {full_after_seconds} s";
const SYNCED: &str = "every block waits for the disk, or is written twice; longhaul cp syncs each \
                      file before it renames it";
const READ_AHEAD: &str = "{target_bps} / 8 x {access_ms} of access time = {wanted_bytes}; \
                          otherwise programs that read through the page cache wait (longhaul cp \
                          reads ahead itself, with direct I/O)";

const fn files(name: &'static str, present: &'static str) -> Case {
    case(name, present)
        .wanted("4096 or more")
        .why(FILES)
        .run(&["ulimit -n 4096    # LimitNOFILE= for a service"])
}

const fn locked(name: &'static str, present: &'static str) -> Case {
    case(name, present)
        .wanted("64.0 MiB or more")
        .why(LOCKED)
        .run(&["ulimit -l unlimited    # as root; LimitMEMLOCK= for a service"])
}

pub(super) const PHRASES: &[Phrase] = &[
    phrase(
        "governor",
        "frequency governor",
        &[
            case("performance", "{governors}"),
            case("other", "{governors}")
                .wanted("performance")
                .why(
                    "a core that sleeps between packets wakes at a low frequency; ESnet's guide \
                     for 100G names this first",
                )
                .run(&["sudo cpupower frequency-set -g performance"]),
        ],
    ),
    phrase(
        "turbo",
        "turbo frequencies",
        &[
            case("on", "on"),
            case("off", "off")
                .wanted("on")
                .why(
                    "one connection is as fast as one core (ESnet's guide for data-transfer nodes)",
                )
                .run(&["echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"]),
        ],
    ),
    phrase(
        "idle_states",
        "idle states",
        &[
            case("all_off", "all off"),
            case("quick", "down to {deepest}, exit latency {exit_us} us"),
            case("slow", "down to {deepest}, exit latency {exit_us} us")
                .wanted("none with an exit latency above {wanted_us} us")
                .why(
                    "{packets} packets of 1500 bytes arrive at {target_bps} while a core wakes; \
                     each pause of a transfer ends with a wake-up",
                )
                .run(&["sudo cpupower idle-set -D {wanted_us}"]),
        ],
    ),
    phrase(
        "threads_of_cores",
        "two threads per core",
        &[
            case("off", "off"),
            case("on", "on")
                .wanted("off, in the firmware")
                .why(
                    "two busy threads may share one core, and the pair changes from run to run \
                     (ESnet's guide for 100G)",
                )
                .run(&["echo off | sudo tee /sys/devices/system/cpu/smt/control    # to try it"]),
        ],
    ),
    phrase(
        "frequency",
        "highest frequency",
        &[
            case("enough", "{gigahertz} GHz"),
            case("low", "{gigahertz} GHz")
                .wanted("3 GHz for 30 Gb/s in one connection")
                .why(
                    "one connection is as fast as one core (ESnet's guide for 100G); several share \
                     the work",
                )
                .run(&["longhaul test HOST -P {connections}"]),
        ],
    ),
    phrase(
        "stolen",
        "stolen time",
        &[case("share", "{stolen_percent} of the time since boot")
            .wanted("under 1 %")
            .why(
                "while the hypervisor runs other guests, packets wait or are lost; its operator \
                 can give this guest more or reserved processors",
            )
            .run(&["vmstat 1 5    # column st"])],
    ),
    phrase("memory_copy", "memory, measured", CORE),
    phrase("blake3", "digests, measured", CORE),
    phrase("xxh3", "verification, measured", CORE),
    phrase("aes_256_gcm", "encryption, measured", CORE),
    phrase("disk_write", "writing, measured", DISK),
    phrase("disk_read", "reading, measured", DISK),
    phrase(
        "file_system",
        "file system",
        &[
            case("local", "{file_system} at {mount_point}[, on {device}]"),
            case("read_only", "{file_system} at {mount_point}[, on {device}], read-only")
                .wanted("a writable file system, for copies to it")
                .why("copies to it are impossible"),
            case("sync", "{file_system} at {mount_point}[, on {device}], sync")
                .wanted("asynchronous writes, only metadata in the journal")
                .why(SYNCED)
                .run(&["sudo mount -o remount,async {mount_point}"]),
            case("data_journal", "{file_system} at {mount_point}[, on {device}], data=journal")
                .wanted("asynchronous writes, only metadata in the journal")
                .why(SYNCED)
                .run(&["sudoedit /etc/fstab    # {mount_point}: data=ordered; then mount it again"]),
            case("strictatime", "{file_system} at {mount_point}[, on {device}], strictatime")
                .wanted("relatime or noatime")
                .why("every read of a file writes its access time")
                .run(&["sudo mount -o remount,noatime {mount_point}"]),
            case("memory", "{file_system} at {mount_point}[, on {device}]")
                .wanted("a disk")
                .why("these files are in memory: fast, and lost at the next boot"),
            case("overlay", "{file_system} at {mount_point}[, on {device}]")
                .wanted("a separate volume")
                .why("a container layer copies a whole file at the first write to it"),
            case("remote", "{file_system} at {mount_point}[, on {device}]")
                .wanted("its rate, measured separately")
                .why("these files come over another network or from another program")
                .run(&["longhaul doctor --active --disk ."]),
        ],
    ),
    phrase(
        "room",
        "room",
        &[
            case("enough", "{free_bytes} of {size_bytes}").why(FULL),
            case("low", "{free_bytes} of {size_bytes}")
                .wanted("5 % or more")
                .why(
                    "at {target_bps} it is full after {full_after_seconds} s; a full file system \
                     takes long to find free blocks",
                )
                .run(&["du -xh -d1 {subject} | sort -h | tail"]),
        ],
    ),
    phrase(
        "direct_io",
        "direct I/O",
        &[
            case("works", "works").why("files bypass the page cache without a copy"),
            case("refused", "refused by the file system")
                .wanted("ext4, XFS or another that supports O_DIRECT")
                .why(
                    "every byte is copied through the page cache, which costs a core some 5 GB/s of \
                     its memory's speed",
                ),
        ],
    ),
    phrase(
        "scheduler",
        "I/O scheduler",
        &[
            case("good", "{scheduler}"),
            case("other", "{scheduler}, on {device}")
                .wanted("{wanted}")
                .why(SCHEDULER)
                .run(&["echo {wanted} | sudo tee /sys/block/{device}/queue/scheduler"]),
            case("other_rotational", "{scheduler}, on {device}, rotational")
                .wanted("{wanted}")
                .why(SCHEDULER)
                .run(&["echo {wanted} | sudo tee /sys/block/{device}/queue/scheduler"]),
        ],
    ),
    phrase(
        "read_ahead",
        "read-ahead",
        &[
            case("enough", "{read_ahead_bytes}").why(READ_AHEAD),
            case("small", "{read_ahead_bytes}")
                .wanted("{wanted_bytes} or more")
                .why(READ_AHEAD)
                .run(&["sudo blockdev --setra {wanted_sectors} /dev/{device}"]),
        ],
    ),
    phrase(
        "disk_node",
        "NUMA node",
        &[
            case("same", "node {node}, as the network"),
            case("other", "disk on node {node}, {interface} on node {interface_node}")
                .wanted("one node for both")
                .why(
                    "data cross from one processor's memory to the other's before they are sent; \
                     use another slot, or run programs on the network's node",
                )
                .run(&["numactl --cpunodebind={interface_node} longhaul serve --root {subject}"]),
        ],
    ),
    phrase(
        "clock",
        "clock",
        &[
            case("synchronised", "synchronized, error at most {error_ms}"),
            case("free_running", "not synchronized")
                .wanted("synchronized")
                .why(
                    "one-way delays, and logs of two hosts, cannot be compared; rates and round \
                     trips are not affected",
                )
                .run(&["sudo timedatectl set-ntp true    # or install chrony"]),
        ],
    ),
    phrase(
        "clock_source",
        "clock source",
        &[
            case("quick", "{source}"),
            case("slow", "{source}")
                .wanted("tsc, or the hypervisor's clock")
                .why(
                    "TCP reads the time several times per segment, and each read of this clock \
                     leaves the processor for about a microsecond",
                )
                .run(&["cat /sys/devices/system/clocksource/clocksource0/available_clocksource"]),
        ],
    ),
    phrase(
        "open_files",
        "open files",
        &[
            files("unlimited", "no limit"),
            files("limited", "{limit}"),
            files("raisable", "{limit}, can be raised to {raisable_limit}"),
            files("raisable_freely", "{limit}, can be raised without limit"),
        ],
    ),
    phrase(
        "locked_memory",
        "locked memory",
        &[
            locked("unlimited", "no limit"),
            locked("limited", "{limit_bytes}"),
            locked("raisable", "{limit_bytes}, can be raised to {raisable_limit_bytes}"),
            locked("raisable_freely", "{limit_bytes}, can be raised without limit"),
        ],
    ),
    phrase(
        "firewall",
        "firewall",
        &[
            case("empty", "nftables filters nothing"),
            case("filtering", "{rules} rules in {chains}[; dropped by default: {dropping_chains}]")
                .wanted("TCP and UDP port {port} open")
                .why(
                    "rules filter received packets, and every packet of a transfer passes them; \
                     longhaul does not evaluate them",
                )
                .run(&[
                    "sudo nft list chain {first_chain}",
                    "sudo nft insert rule {first_chain} tcp dport {port} accept",
                    "sudo nft insert rule {first_chain} udp dport {port} accept",
                ]),
        ],
    ),
    phrase(
        "firewall_old",
        "firewall, older iptables",
        &[
            case("empty", "no table in use"),
            case("filtering", "tables in use: {tables}")
                .wanted("TCP and UDP port {port} open")
                .why("its rules check every packet; longhaul does not read them")
                .run(&[
                    "sudo iptables-legacy -S INPUT",
                    "sudo iptables-legacy -I INPUT -p tcp --dport {port} -j ACCEPT",
                    "sudo iptables-legacy -I INPUT -p udp --dport {port} -j ACCEPT",
                ]),
        ],
    ),
    phrase(
        "tracked_connections",
        "tracked connections",
        &[
            case("enough", "{connections} of {most}"),
            case("full", "{connections} of {most}")
                .wanted("under 90 %")
                .why("when the table is full, new connections are dropped")
                .run(&["sudo sysctl -w net.netfilter.nf_conntrack_max='{wanted}'"]),
        ],
    ),
];

const SCHEDULER: &str = "it keeps long reads and writes in order and adds no delay (ESnet's guide \
                         for data-transfer nodes: deadline)";
