//! Results: the outcome of runs. Renderers only display them.
//!
//! Names end in their units (`_bps`, `_bytes`, `_seconds`, `_ms`), and each document that outlives
//! a process states its schema, such as `"longhaul.test/1"`. `docs/design/results.md` describes all
//! documents.

mod audit;
mod bottleneck;
mod certificate;
mod copy;
mod copy_end;
mod diagnosis;
mod doctor;
mod flow;
mod gain;
mod impairments;
mod latency;
mod lateness;
mod link;
mod manifest;
mod path;
mod run;
mod side;
mod stamp;
mod step;
mod test;
mod udp;
mod warning;

use serde::{Deserialize, Serialize};

pub use audit::{AUDIT_SCHEMA, AuditEvent, AuditRecord};
pub use bottleneck::{Bottleneck, Cure, CureKind, Evidence, Remedy, Resource};
pub use certificate::{
    Certificate, Check, CheckUnit, CheckVerdict, MachineTiming, RECORDING_CERTIFICATE_SCHEMA,
    RecordingCertificate, RecordingCheck, RecordingFigure,
};
pub use copy::{
    Action, ActionKind, AddressReport, COPY_SCHEMA, CopyFailure, CopyLimit, CopyPathReport,
    CopyResult, CopySummary, DigestOf, Kept, NotKept, PathBefore,
};
pub use copy_end::{BusyThread, DataPath, EndReport, StageTimes, ThreadRole, TransferEnd};
pub use diagnosis::{BoundedTest, DiagnosedEnds, Diagnosis, EndView, Gap, SubsetReport};
pub use doctor::{
    Area, DoctorReport, DoctorTarget, Finding, FindingValue, FindingVerdict, HostSummary,
    Measurement, TargetSource,
};
pub use flow::{FlowFigures, GoodputSample};
pub use gain::GainRounds;
pub use impairments::{Impairments, Segments};
pub use latency::{LatencyQuantiles, LatencyResult};
pub use lateness::{Lateness, LatenessBucket, LatenessCause, LatenessCauses, MainCause};
pub use link::{
    DirectionReport, DropCounts, GuestProcessor, LinkReport, LinkWarning, ProcessorShare,
    SiteReport, TopologyLinkReport, TopologyReport, Traffic,
};
pub use manifest::{
    CHECK_SCHEMA, Manifest, ManifestCheck, ManifestError, ManifestFile, digest_from_hex, hex,
};
pub use path::{
    Asymmetry, AsymmetryVerdict, CapacityFigures, Certainty, DelayVariation, Hop, Hops, MtuLimit,
    MtuProof, PATH_SCHEMA, PathDirection, PathEnd, PathResult, ProbeFigures, Prober, Proportion,
    RoundTrips, RttFigures, SentProbes, TcpSegments, Unmeasured,
};
pub use run::{
    Caches, CpuSeconds, Guarantees, HostLoad, Outcome, RunRecord, RunSample, RunSchema, ToolOutput,
    WorkDone,
};
pub use side::{
    HostLimits, HostSample, SideResult, SideSample, SideStream, SideStreamSample, TcpSample,
    ThreadSample,
};
pub use stamp::{
    NoHardware, STAMP_RECORD_SCHEMA, STAMP_SCHEMA, StampClass, StampClock, StampClocks, StampDelay,
    StampDirection, StampFigures, StampHistograms, StampNumbering, StampOrigin, StampOrigins,
    StampRecord, StampReflector, StampResult,
};
pub use step::{CopyEvidence, DiagnosisStep, DiskStepReport, HostUse, StepReport, StepRound};
pub use test::{
    Curve, EndFacts, Holder, LinkSummary, MeasuredHalf, Reason, Shares, SideReport,
    SideStreamReport, SideSummary, Steady, StreamResult, StreamSample, TEST_SCHEMA, TestEnd,
    TestFacts, TestHalf, TestLimit, TestPeer, TestResult, TestSample, TestSummary,
};
pub use udp::{DatagramReport, UdpCounts, UdpResult};
pub use warning::{End, MissedTime, Warning, WarningKind};

/// The schema of [`ErrorDocument`] in JSON.
pub const ERROR_SCHEMA: &str = "longhaul.error/1";

/// A fatal error of a command with JSON output; `docs/design/results.md` describes every field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDocument {
    /// [`ERROR_SCHEMA`].
    pub schema: String,
    /// The exit code.
    pub code: u8,
    /// The name of the exit code, in snake case.
    pub kind: String,
    /// The sentence that the program prints.
    pub message: String,
}

impl ErrorDocument {
    /// Returns the document of an error.
    pub fn new(code: u8, kind: &str, message: String) -> Self {
        ErrorDocument { schema: ERROR_SCHEMA.to_owned(), code, kind: kind.to_owned(), message }
    }
}

/// The command, host and time of a result.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Invocation {
    /// The time of the start in UTC, RFC 3339 with milliseconds.
    pub started_at: String,
    /// The name of the host that ran the command.
    pub host: String,
    /// The version of the program.
    pub version: String,
    /// The command line, beginning with the program. Bytes that are not UTF-8 are replaced.
    pub command: Vec<String>,
}
