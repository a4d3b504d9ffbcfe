use std::path::PathBuf;

use clap::Args;
use longhaul_core::units::Bytes;

/// Compare transfer tools over emulated wide-area paths
///
/// Runs each tool of the plan over each path, one at a time, keeps every run, and prints a table;
/// the directory also receives report.html with its figures. Without a plan, the shipped plan 'default'
/// is run: round trips of 0, 15, 90 and 180 ms; memory to memory with longhaul test, iperf3 and
/// nuttcp; disk to disk with longhaul cp, scp, rsync and globus-url-copy. Tools that are not
/// installed are rows marked so. What the plan will take is shown first.
///
/// Exit codes: 0 all runs are valid, 2 the plan makes no sense or takes so much that --yes is
/// needed, 5 no room on the disk or data that cannot be read, 6 this host cannot emulate links,
/// 7 some runs failed or are invalid, 130 interrupted.
#[derive(Debug, Args)]
pub(in crate::cli) struct MatrixArgs {
    /// Plan to run: a file (TOML; see docs/guide/matrix.md), or a shipped plan by its name
    #[arg(value_name = "PLAN", conflicts_with = "quick")]
    pub(super) plan: Option<PathBuf>,
    /// Run the shipped plan 'quick', which ends in under five minutes
    #[arg(long)]
    pub(super) quick: bool,
    /// List the shipped plans and what each takes, and end
    #[arg(long)]
    pub(super) list_plans: bool,
    /// Print the text of the plan and what it takes, and end; a start for one of your own
    #[arg(long)]
    pub(super) show_plan: bool,
    /// Begin also what takes more than an hour or most of the memory
    #[arg(long, short = 'y')]
    pub(super) yes: bool,
    /// Continue an interrupted matrix: the one in --out, or the latest in this directory
    #[arg(long)]
    pub(super) resume: bool,
    /// With --resume: also make the runs again that failed
    #[arg(long, requires = "resume")]
    pub(super) retry_failed: bool,
    /// With --resume: go on although longhaul or a tool is another than before
    #[arg(long, requires = "resume")]
    pub(super) mix: bool,
    /// Directory for the archive and the report [default: longhaul-matrix-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// File or directory to copy, instead of a made file of incompressible bytes
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    pub(super) data: Option<PathBuf>,
    /// Size of the made file, such as 1GiB
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Bytes>,
    /// Multiply the volume of everything that is made by this, such as 0.01
    #[arg(long, value_name = "FACTOR")]
    pub(super) scale: Option<f64>,
    /// Far end of a plan with a real path, by its ssh name
    #[arg(long, value_name = "USER@HOST")]
    pub(super) far: Option<String>,
    /// Directory on the disk that receives the copies over emulated paths [default: the output
    /// directory]
    #[arg(long, value_name = "DIR")]
    pub(super) scratch: Option<PathBuf>,
    /// Keep this proof of the emulator's accuracy here, for the report (longhaul wan selftest
    /// --json)
    #[arg(long, value_name = "FILE")]
    pub(super) certificate: Option<PathBuf>,
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
            || self.scale.is_some()
            || self.far.is_some()
            || self.repeats.is_some()
            || !self.only.is_empty()
    }
}
