use std::path::PathBuf;

use clap::Args;
use longhaul_core::units::Bytes;

/// Compare transfer tools over emulated wide-area paths
///
/// Runs each tool of the plan over each path, one at a time, keeps every run, and prints a table;
/// the directory also receives report.html with plots. Without a plan, the built-in one is run:
/// round trips of 0, 15, 90 and 180 ms; memory to memory with longhaul test, iperf3 and nuttcp;
/// disk to disk with longhaul cp, scp, rsync and globus-url-copy. Tools that are not installed
/// are rows marked so.
///
/// Exit codes: 0 all runs are valid, 2 the plan makes no sense, 5 no room on the disk or data
/// that cannot be read, 6 this host cannot emulate links, 7 some runs failed or are invalid, 130
/// interrupted.
#[derive(Debug, Args)]
pub(in crate::cli) struct MatrixArgs {
    /// Plan to run (TOML; see docs/guide/matrix.md)
    #[arg(value_name = "PLAN.toml", conflicts_with = "quick")]
    pub(super) plan: Option<PathBuf>,
    /// Run the built-in plan once, scaled to end in under five minutes
    #[arg(long)]
    pub(super) quick: bool,
    /// Continue an interrupted matrix: the one in --out, or the latest in this directory
    #[arg(long)]
    pub(super) resume: bool,
    /// With --resume: also make the runs again that failed
    #[arg(long, requires = "resume")]
    pub(super) retry_failed: bool,
    /// Directory for the archive and the report [default: longhaul-matrix-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// File or directory to copy, instead of a made file of incompressible bytes
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    pub(super) data: Option<PathBuf>,
    /// Size of the made file, such as 1GiB
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Bytes>,
    /// Directory on the disk that receives the copies [default: the output directory]
    #[arg(long, value_name = "DIR")]
    pub(super) scratch: Option<PathBuf>,
    /// Complete passes over all cells
    #[arg(long, value_name = "N")]
    pub(super) repeats: Option<u32>,
    /// Run only these rows: 'scp', 'longhaul', 'longhaul cp --cleartext'
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// Print one JSON document (longhaul.matrix/1) instead of the table
    #[arg(long)]
    pub(super) json: bool,
}

impl MatrixArgs {
    /// Whether the arguments say what to run, rather than leave it to the built-in plan or, when
    /// resuming, to the archive.
    pub(super) fn says_what(&self) -> bool {
        self.plan.is_some()
            || self.quick
            || self.data.is_some()
            || self.size.is_some()
            || self.repeats.is_some()
            || !self.only.is_empty()
    }
}
