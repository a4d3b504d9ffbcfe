//! The groups of options, and the options of the short help, by command.

/// The headings of a command, with the options under each.
type Headings = &'static [(&'static str, &'static [&'static str])];

/// The groups of each command. The other options are under "Options".
pub(super) const GROUPS: &[(&str, Headings)] = &[
    (
        "cp",
        &[
            (
                "Files and attributes",
                &[
                    "recursive",
                    "archive",
                    "preserve",
                    "links",
                    "rsync_slash",
                    "numeric_ids",
                    "update",
                    "sync_level",
                    "delete",
                    "max_delete",
                    "dry_run",
                    "size",
                ],
            ),
            (
                "Selection",
                &["include", "exclude", "include-from", "exclude-from", "files_from", "from0"],
            ),
            (
                "Integrity",
                &["digest", "manifest", "check", "cleartext", "no_verify", "verify", "no_fsync"],
            ),
            (
                "Rate and resources",
                &[
                    "streams",
                    "bwlimit",
                    "nice",
                    "dedicated",
                    "affinity",
                    "block",
                    "direct",
                    "give_up",
                ],
            ),
            (
                "Hosts",
                &[
                    "accept_new",
                    "rsh",
                    "far_longhaul",
                    "via_ssh",
                    "bind",
                    "addresses",
                    "install_far",
                    "yes",
                ],
            ),
            ("Output", &["verbose", "stats", "quiet", "json", "json_stream"]),
        ],
    ),
    (
        "test",
        &[
            ("Duration", &["time", "bytes", "blocks", "omit", "interval"]),
            (
                "Direction and streams",
                &["streams", "reverse", "bidir", "flip", "bind", "local", "remote"],
            ),
            ("Protocol", &["udp", "mptcp", "port", "ipv4", "ipv6", "dscp", "tos"]),
            (
                "Rate and sockets",
                &[
                    "rate",
                    "per_stream",
                    "pacing",
                    "burst",
                    "length",
                    "window",
                    "congestion",
                    "mss",
                    "no_delay",
                ],
            ),
            ("Host", &["zerocopy", "skip_rx_copy", "affinity"]),
            (
                "Access",
                &["rsh", "far_longhaul", "username", "rsa_public_key_path", "use_pkcs1_padding"],
            ),
            ("Output", &["latency", "json", "json_stream"]),
        ],
    ),
    (
        "serve",
        &[
            ("Address", &["bind", "port"]),
            ("Files", &["root", "read_only", "write_only", "min_free", "no_third_party"]),
            (
                "Other programs",
                &["iperf3", "nuttcp", "stamp", "stamp_key", "stamp_stateless", "stamp_rate"],
            ),
            (
                "Limits of clients",
                &[
                    "exclusive",
                    "max_clients",
                    "max_anonymous",
                    "queue",
                    "max_per_address",
                    "keys_only",
                    "max_startups",
                    "max_startups_per_address",
                    "no_penalties",
                ],
            ),
            (
                "Limits of a session",
                &[
                    "anonymous_memory",
                    "key_memory",
                    "max_time",
                    "max_rate",
                    "max_streams",
                    "key_max_time",
                    "key_max_rate",
                    "key_max_streams",
                ],
            ),
            ("Process", &["one_off", "user", "landlock", "log", "log_format"]),
        ],
    ),
    (
        "matrix",
        &[
            ("Plan", &["quick", "list_plans", "show_plan", "only", "repeats", "size", "scale"]),
            ("Run", &["yes", "resume", "retry_failed", "mix", "far", "data", "scratch"]),
            ("Output", &["out", "certificate", "json"]),
        ],
    ),
    (
        "path",
        &[
            ("Probes", &["time", "interval", "length", "echoes", "max_hops", "skip", "no_server"]),
            ("Protocol", &["port", "ipv4", "ipv6"]),
            (
                "STAMP and TWAMP Light",
                &[
                    "stamp",
                    "continuous",
                    "record_time",
                    "stamp_key",
                    "dscp",
                    "ecn",
                    "no_extensions",
                    "same_clock",
                ],
            ),
            ("Access", &["rsh", "far_longhaul"]),
            ("Output", &["json", "quiet"]),
        ],
    ),
];

/// The options of the short help (`-h`). The long help (`--help`) has all. Commands that are not
/// listed have all options in both.
pub(super) const COMMON: &[(&str, &[&str])] = &[
    (
        "cp",
        &[
            "recursive",
            "archive",
            "preserve",
            "update",
            "sync_level",
            "delete",
            "dry_run",
            "exclude",
            "streams",
            "bwlimit",
            "cleartext",
            "verify",
            "rsh",
            "far_longhaul",
            "accept_new",
            "verbose",
            "quiet",
            "json",
        ],
    ),
    (
        "test",
        &[
            "port",
            "time",
            "bytes",
            "streams",
            "reverse",
            "bidir",
            "udp",
            "rate",
            "length",
            "window",
            "congestion",
            "ipv4",
            "ipv6",
            "omit",
            "interval",
            "json",
        ],
    ),
    (
        "serve",
        &[
            "bind",
            "port",
            "root",
            "read_only",
            "write_only",
            "one_off",
            "iperf3",
            "nuttcp",
            "exclusive",
            "max_clients",
            "max_time",
            "max_rate",
            "keys_only",
            "log",
            "user",
        ],
    ),
    (
        "path",
        &[
            "port",
            "time",
            "length",
            "skip",
            "ipv4",
            "ipv6",
            "no_server",
            "stamp",
            "rsh",
            "json",
            "quiet",
        ],
    ),
    ("matrix", &["quick", "list_plans", "only", "repeats", "size", "yes", "resume", "out", "json"]),
];
