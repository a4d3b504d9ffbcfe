//! The examples of the subcommands of `fleet`, `hub user`, `generate` and `wan`, and of `iperf3` and `nuttcp`.

use super::examples::Example;

/// The examples of each command.
pub(super) const SUBCOMMAND_EXAMPLES: &[(&str, &[Example])] = &[
    (
        "fleet login",
        &[
            (
                "Log in with the pin that the hub prints when it starts",
                "longhaul fleet login https://hub:5280 --pin 0123456789abcdef",
            ),
            (
                "Verify the hub by the certificate of an authority",
                "longhaul fleet login https://hub.example.org --user ann --ca authority.pem",
            ),
            (
                "Read the password from a file",
                "longhaul fleet login https://hub:5280 --pin 0123456789abcdef < password.txt",
            ),
        ],
    ),
    (
        "fleet token",
        &[
            ("Create a token for the agent of the host west", "longhaul fleet token west"),
            ("Create a token that is valid for an hour", "longhaul fleet token west --valid 1h"),
            ("Print the token as a document", "longhaul fleet token west --json"),
        ],
    ),
    (
        "fleet revoke",
        &[
            ("Refuse the agent of the host west", "longhaul fleet revoke west"),
            ("Print one document", "longhaul fleet revoke west --json"),
            (
                "Print only the id of the refused agent",
                "longhaul fleet revoke west --json | jq -r .agent",
            ),
        ],
    ),
    (
        "fleet plan",
        &[
            ("Compare a mesh file with the hub", "longhaul fleet plan mesh.toml"),
            ("Check a mesh file without a hub", "longhaul fleet plan mesh.toml --offline"),
            ("Print one document", "longhaul fleet plan mesh.toml --json"),
        ],
    ),
    (
        "fleet apply",
        &[
            ("Apply a mesh file", "longhaul fleet apply mesh.toml"),
            (
                "Apply a mesh file only if the hub still has revision 7",
                "longhaul fleet apply mesh.toml --revision 7",
            ),
            ("Print one document", "longhaul fleet apply mesh.toml --json"),
        ],
    ),
    (
        "fleet status",
        &[
            ("Show all pairs that are not good", "longhaul fleet status"),
            ("Print one document", "longhaul fleet status --json"),
            (
                "Count the cells in each state",
                "longhaul fleet status --json | jq -r '.cells[].state' | sort | uniq -c",
            ),
        ],
    ),
    (
        "fleet hosts",
        &[
            ("List the hosts and their agents", "longhaul fleet hosts"),
            ("Print one document", "longhaul fleet hosts --json"),
            (
                "List only the names of the hosts",
                "longhaul fleet hosts --json | jq -r '.hosts[].name'",
            ),
        ],
    ),
    (
        "fleet runs",
        &[
            ("List the latest 20 runs", "longhaul fleet runs --limit 20"),
            (
                "List the failed runs between two hosts",
                "longhaul fleet runs --source west --destination east --state failed",
            ),
            ("Print the result of one run", "longhaul fleet runs 1a21f7bcda8-880b5e681f --json"),
        ],
    ),
    (
        "fleet import-psconfig",
        &[
            ("Convert a template", "longhaul fleet import-psconfig site.json > mesh.toml"),
            (
                "State the capacity of the interfaces",
                "longhaul fleet import-psconfig site.json --capacity 100G > mesh.toml",
            ),
            (
                "Show what the mesh file would have",
                "longhaul fleet import-psconfig site.json | less",
            ),
        ],
    ),
    (
        "hub user",
        &[
            ("Add a user who applies meshes", "longhaul hub user add bob --role admin"),
            ("Change a password", "longhaul hub user passwd ann"),
            ("List the users and their roles", "longhaul hub user list"),
        ],
    ),
    (
        "hub user add",
        &[
            ("Add a user who reads the pages", "longhaul hub user add ann"),
            ("Add a user who applies meshes", "longhaul hub user add bob --role admin"),
            (
                "Add a user to the data of the system service",
                "longhaul hub user add ann --data /var/lib/longhaul-hub",
            ),
        ],
    ),
    (
        "hub user passwd",
        &[
            ("Change a password", "longhaul hub user passwd ann"),
            (
                "Change a password in PostgreSQL",
                "longhaul hub user passwd ann --database postgres://hub@db/fleet",
            ),
            ("Read the password from a file", "longhaul hub user passwd ann < password.txt"),
        ],
    ),
    (
        "hub user list",
        &[
            ("List the users and their roles", "longhaul hub user list"),
            ("Print one document", "longhaul hub user list --json"),
            (
                "List the users of the system service",
                "longhaul hub user list --data /var/lib/longhaul-hub",
            ),
        ],
    ),
    (
        "generate",
        &[
            (
                "Write the man pages into a directory of the user",
                "longhaul generate man ~/.local/share/man/man1",
            ),
            ("Print the completion script of bash", "longhaul generate completions bash"),
            (
                "Write the completion script of zsh into a file",
                "longhaul generate completions zsh > _longhaul",
            ),
        ],
    ),
    (
        "generate man",
        &[
            (
                "Write the man pages into a directory of the user",
                "longhaul generate man ~/.local/share/man/man1",
            ),
            (
                "Write them into a directory of the system",
                "longhaul generate man /usr/local/share/man/man1",
            ),
            ("Write them into the current directory", "longhaul generate man ."),
        ],
    ),
    (
        "generate completions",
        &[
            ("Print the script of bash", "longhaul generate completions bash"),
            (
                "Write the script of zsh into a file",
                "longhaul generate completions zsh > _longhaul",
            ),
            (
                "Write the script of fish into a file",
                "longhaul generate completions fish > longhaul.fish",
            ),
        ],
    ),
    (
        "wan down",
        &[
            ("Take the running topology down", "longhaul wan down"),
            ("Take one of several topologies down", "longhaul wan down --name sc10"),
            ("Keep its final counters in a file", "longhaul wan down > counters.txt"),
        ],
    ),
    (
        "wan bridge",
        &[
            (
                "Emulate 90 ms and 10 Gb/s between two interfaces",
                "longhaul wan bridge eth1 eth2 --rtt 90ms --rate 10G",
            ),
            (
                "Configure the interfaces for it, and restore them",
                "longhaul wan bridge eth1 eth2 --rtt 40ms --loss 1e-4 --fix",
            ),
            (
                "Replay a recorded path for ten minutes",
                "longhaul wan bridge eth1 eth2 --replay path.json -t 10m",
            ),
        ],
    ),
    (
        "wan certify",
        &[
            ("Check the replay of a recording", "longhaul wan certify path.json"),
            (
                "Compare the recording with the replay of another one",
                "longhaul wan certify path.json --replay other.json",
            ),
            ("Print one document", "longhaul wan certify path.json --json"),
        ],
    ),
    (
        "wan selftest",
        &[
            ("Check every property of the emulator", "longhaul wan selftest"),
            (
                "Check every property with fewer datagrams, in two minutes",
                "longhaul wan selftest --quick",
            ),
            ("Check the emulator of 'wan bridge'", "longhaul wan selftest --bridge"),
        ],
    ),
    (
        "iperf3",
        &[
            ("Measure to an iperf3 server", "longhaul iperf3 -c server -t 5 -P 4"),
            ("Run a server for iperf3 clients", "longhaul iperf3 -s"),
            ("Print the document of iperf3", "longhaul iperf3 -c server -u -b 100M -J"),
        ],
    ),
    (
        "nuttcp",
        &[
            ("Measure to a nuttcp server", "longhaul nuttcp -T5 -N4 server"),
            ("Run a server for nuttcp clients", "longhaul nuttcp -S"),
            ("Measure from a nuttcp server", "longhaul nuttcp -r server"),
        ],
    ),
];
