//! The arguments of `longhaul matrix`.

use std::path::PathBuf;

use clap::Args;
use longhaul_core::units::Bytes;

/// Compare transfer tools over emulated wide-area paths
///
/// Runs each tool of the plan over each path, one at a time, records every run, prints a table and
/// writes report.html with figures. The default plan, 'default', has round-trip times of 0, 15, 90
/// and 180 ms. It measures memory to memory with longhaul test, iperf3 and nuttcp, and disk to disk
/// with longhaul cp, scp, rsync and globus-url-copy. The table marks tools that are not installed.
/// longhaul prints an estimate of time and space before the first run.
///
/// Exit codes: 0 all runs are valid, 2 the plan is invalid or needs --yes, 3 ssh cannot reach the host
/// of --far, 5 not enough disk space or unreadable data, 6 this host cannot emulate links, 7 some runs
/// failed or are invalid, 130 interrupted.
#[derive(Debug, Args)]
pub(in crate::cli) struct MatrixArgs {
    /// Plan to run: a TOML file (see docs/guide/matrix.md), or the name of a shipped plan
    #[arg(value_name = "PLAN", conflicts_with = "quick")]
    pub(super) plan: Option<PathBuf>,
    /// Run the shipped plan 'quick', which takes less than five minutes
    #[arg(long)]
    pub(super) quick: bool,
    /// Run the shipped plan 'tune', which searches for the best settings of the tools over an emulated
    /// path, or with --far over the real path to a host
    #[arg(long, conflicts_with_all = ["plan", "quick"])]
    pub(super) search: bool,
    /// List the shipped plans with their time and space, and exit
    #[arg(long)]
    pub(super) list_plans: bool,
    /// List the tools with their versions on this host, and the drivers that have never run with
    /// the real tool ('untried'), and exit
    #[arg(long)]
    pub(super) list_tools: bool,
    /// Print the text of the plan with its time and space, and exit; use it as a template
    #[arg(long)]
    pub(super) show_plan: bool,
    /// Start even if the matrix needs more than an hour or half of the free memory
    #[arg(long, short = 'y')]
    pub(super) yes: bool,
    /// Continue an interrupted matrix: the one in --out, or the latest in this directory
    #[arg(long)]
    pub(super) resume: bool,
    /// With --resume: repeat the failed runs
    #[arg(long, requires = "resume")]
    pub(super) retry_failed: bool,
    /// With --resume: continue even if longhaul or a tool has changed
    #[arg(long, requires = "resume")]
    pub(super) mix: bool,
    /// Directory for the archive and the report [default: longhaul-matrix-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// File or directory to copy [default: a generated file of incompressible bytes]
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    pub(super) data: Option<PathBuf>,
    /// Size of the generated file, such as 1GiB
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Bytes>,
    /// Multiply the size of all generated data by this factor, such as 0.01
    #[arg(long, value_name = "FACTOR")]
    pub(super) scale: Option<f64>,
    /// Run the plan over the real path to this host, to which ssh connects, instead of emulated paths
    #[arg(long, value_name = "USER@HOST")]
    pub(super) far: Option<String>,
    /// Directory for the copies over emulated paths [default: the output directory]
    #[arg(long, value_name = "DIR")]
    pub(super) scratch: Option<PathBuf>,
    /// Add this certificate of the emulator's accuracy to the report (the output of 'longhaul wan
    /// selftest --json')
    #[arg(long, value_name = "FILE")]
    pub(super) certificate: Option<PathBuf>,
    /// Number of passes over all cells
    #[arg(long, value_name = "N")]
    pub(super) repeats: Option<u32>,
    /// Run only these rows, such as 'scp', 'longhaul' or 'longhaul cp --cleartext'
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// Print one JSON document (longhaul.matrix/1) instead of the table
    #[arg(long)]
    pub(super) json: bool,
}

impl MatrixArgs {
    /// Returns the name of the shipped plan that runs without PLAN.
    pub(super) fn shipped(&self) -> &'static str {
        match (self.quick, self.search) {
            (true, _) => "quick",
            (_, true) => "tune",
            _ => "default",
        }
    }

    /// True if an argument selects the plan or changes it. Otherwise the default plan or, with
    /// `--resume`, the plan in the archive is used.
    pub(super) fn selects_plan(&self) -> bool {
        self.plan.is_some()
            || self.quick
            || self.search
            || self.data.is_some()
            || self.size.is_some()
            || self.scale.is_some()
            || self.far.is_some()
            || self.repeats.is_some()
            || !self.only.is_empty()
    }
}
