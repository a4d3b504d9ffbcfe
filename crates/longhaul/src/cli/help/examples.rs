//! The examples of the long help and of the man pages.

/// The purpose of an example and its command line.
pub(super) type Example = (&'static str, &'static str);

/// The examples of each command.
pub(super) const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "cp",
        &[
            ("Copy a directory over ssh", "longhaul cp -r run17 user@server:/archive/"),
            (
                "Fetch files by a pattern, at 2 Gb/s",
                "longhaul cp --bwlimit 2G 'server:run17/*.h5' .",
            ),
            (
                "Mirror a directory to a server, and list the changes first",
                "longhaul cp -a --delete -n run17/. lh://server/run17",
            ),
            ("Install longhaul on another host", "longhaul cp --install-far user@server"),
        ],
    ),
    (
        "test",
        &[
            ("Measure for 5 s over 4 streams", "longhaul test server -P 4 -t 5"),
            ("Measure from an iperf3 server to this host", "longhaul test iperf3://server -R"),
            (
                "Send datagrams at 1 Gb/s, to longhaul over ssh",
                "longhaul test user@server -u -b 1G",
            ),
        ],
    ),
    (
        "serve",
        &[
            ("Answer tests and path measurements", "longhaul serve"),
            ("Accept copies below a directory from authorized keys", "longhaul serve --root /data"),
            (
                "Also answer iperf3 clients, at most 10 s each",
                "longhaul serve --iperf3 --max-time 10",
            ),
        ],
    ),
    (
        "diagnose",
        &[
            ("Find the limit of a copy to a server", "longhaul diagnose data.h5 lh://server/in/"),
            ("Measure only the path to a host, over ssh", "longhaul diagnose user@server:"),
            ("Write a page with a chart", "longhaul diagnose --html page.html data server:in"),
        ],
    ),
    (
        "doctor",
        &[
            ("Check this host for 10 Gb/s at 90 ms", "longhaul doctor --rate 10G --rtt 90ms"),
            ("Check another host over ssh", "longhaul doctor user@server --rate 10G"),
            ("Also measure memory, cipher and disk", "longhaul doctor --active --disk /data"),
        ],
    ),
    (
        "path",
        &[
            ("Measure both directions with a server", "longhaul path server"),
            ("Start the server over ssh", "longhaul path user@server"),
            ("Measure with the STAMP reflector of a router", "longhaul path --stamp router"),
        ],
    ),
    (
        "matrix",
        &[
            ("Compare tools in five minutes", "longhaul matrix --quick"),
            ("Compare two tools only", "longhaul matrix --quick --only scp --only 'longhaul cp'"),
            ("Run a plan file", "longhaul matrix plan.toml --out results"),
        ],
    ),
    (
        "report",
        &[
            ("Print the tables of a finished matrix", "longhaul report results"),
            ("Write a page", "longhaul report results --format html > page.html"),
            ("Print the changes since an earlier matrix", "longhaul report results --since before"),
        ],
    ),
    (
        "wan run",
        &[
            (
                "Run iperf3 over an emulated link",
                "longhaul wan run --rtt 90ms --rate 10G --far 'iperf3 -s -1' iperf3 -c far",
            ),
            (
                "Open a shell at the end of a lossy link",
                "longhaul wan run --rtt 40ms --loss 1e-3 sh",
            ),
            (
                "Repeat the options of a netem line",
                "longhaul wan run --netem 'delay 45ms loss 0.1%' -- ping -c 3 far",
            ),
        ],
    ),
    (
        "wan up",
        &[
            ("List the shipped topologies", "longhaul wan up --list"),
            ("Start the network of SC10", "longhaul wan up sc10"),
            ("Start a topology file under a name", "longhaul wan up --name lab topology.toml"),
        ],
    ),
    (
        "key",
        &[
            ("Print the line for authorized_keys", "longhaul key"),
            ("Print the fingerprint", "longhaul key --fingerprint"),
            ("Encrypt the private key", "longhaul key --passphrase"),
        ],
    ),
];
