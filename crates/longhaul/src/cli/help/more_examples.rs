//! The examples of the commands for fleets, interfaces and running links.

use super::examples::Example;

/// The examples of each command.
pub(super) const MORE_EXAMPLES: &[(&str, &[Example])] = &[
    (
        "watch",
        &[
            ("Show all interfaces and the fastest flows", "longhaul watch"),
            (
                "Print a document per second about one interface",
                "longhaul watch -i eth0 --json-stream",
            ),
            (
                "Record, and draw graphs every five minutes",
                "longhaul watch --record --html traffic.html -q",
            ),
        ],
    ),
    (
        "hub",
        &[
            ("Run a hub that keeps its data below /srv", "longhaul hub --data /srv/hub"),
            ("Keep the data in PostgreSQL", "longhaul hub --database postgres://hub@db/fleet"),
            ("Add a user who may read the pages", "longhaul hub user add ann --role viewer"),
        ],
    ),
    (
        "agent",
        &[
            (
                "Enroll this host with the token of 'longhaul fleet token'",
                "longhaul agent --hub https://hub:5280 --token 0123456789abcdef",
            ),
            ("Check the agent and its connection", "longhaul agent --check"),
            ("Test only one network", "longhaul agent --allow 192.0.2.0/24"),
        ],
    ),
    (
        "fleet",
        &[
            ("Log in to a hub", "longhaul fleet login https://hub:5280 --pin 0123456789abcdef"),
            ("Show the differences of a mesh, and change them", "longhaul fleet apply mesh.toml"),
            ("List the tests that did not run, with reasons", "longhaul fleet runs --state missed"),
        ],
    ),
    (
        "wan",
        &[
            (
                "Run a command at the near end of a link",
                "longhaul wan run --rtt 90ms ping -c 3 far",
            ),
            ("Emulate the network of the SC10 conference", "longhaul wan up sc10"),
            ("Check the accuracy of the emulator on this host", "longhaul wan selftest --quick"),
        ],
    ),
    (
        "wan set",
        &[
            ("Lose one segment in 10,000", "longhaul wan set gsfc-arc --loss 1e-4"),
            ("Change the rate of one direction", "longhaul wan set gsfc-arc --down-rate 1G"),
            ("Take a link down", "longhaul wan set gsfc-arc --down"),
        ],
    ),
    (
        "wan exec",
        &[
            ("Open a shell at a site", "longhaul wan exec arc -- bash"),
            ("Run a server at a site", "longhaul wan exec arc -- longhaul serve"),
            (
                "Enter the far end of 'wan run --name demo'",
                "longhaul wan exec demo/far -- ip address",
            ),
        ],
    ),
    (
        "wan status",
        &[
            ("Show the links of the topology that is up", "longhaul wan status"),
            ("Repeat every second", "longhaul wan status --watch"),
            ("Print one document", "longhaul wan status --name sc10 --json"),
        ],
    ),
    (
        "cache",
        &[
            ("Show the kept data and their sizes", "longhaul cache"),
            ("Remove them", "longhaul cache --clear"),
            ("Print one document", "longhaul cache --json"),
        ],
    ),
];
