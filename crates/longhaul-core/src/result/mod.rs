//! Results: the outcome of runs. Renderers only display them.
//!
//! Names end in their units (`_bps`, `_bytes`, `_seconds`, `_ms`), and each document that outlives
//! a process states its schema, such as `"longhaul.test/1"`. `docs/design/results.md` describes all
//! documents.

mod audit;
mod bottleneck;
mod certificate;
mod copy;
mod diagnosis;
mod doctor;
mod error;
mod impairments;
mod invocation;
mod latency;
mod lateness;
mod link;
mod manifest;
mod path;
mod recording;
mod run;
mod side;
mod stamp;
mod step;
mod test;
mod udp;
mod warning;

pub use audit::{AUDIT_SCHEMA, AuditEvent, AuditRecord};
pub use bottleneck::{Bottleneck, Cure, CureKind, Evidence, Remedy, Resource};
pub use certificate::{Certificate, Check, CheckVerdict, MachineTiming, Unit};
pub use copy::{
    Action, ActionKind, AddressReport, BusyThread, COPY_SCHEMA, CopyFailure, CopyLimit,
    CopyPathReport, CopyResult, CopySummary, DataPath, DigestOf, EndReport, Kept, NotKept,
    PathBefore, StageTimes, ThreadRole, TransferEnd,
};
pub use diagnosis::{DiagnosedEnds, Diagnosis, EndView, Gap, SampleReport};
pub use doctor::{
    Area, DoctorReport, DoctorTarget, Finding, FindingValue, HostSummary, Measurement,
    TargetSource, Verdict,
};
pub use error::{ERROR_SCHEMA, ErrorDocument};
pub use impairments::{Impairments, Segments};
pub use invocation::Invocation;
pub use latency::{LatencyQuantiles, LatencyResult};
pub use lateness::{Lateness, LatenessBucket, LatenessCause, LatenessCauses, MainCause};
pub use link::{DirectionReport, DropCounts, LinkReport, LinkWarning, ProcessorShare, Traffic};
pub use link::{SiteReport, TopologyLinkReport, TopologyReport};
pub use manifest::{CHECK_SCHEMA, CheckResult};
pub use manifest::{Manifest, ManifestError, ManifestFile, digest_from_hex, hex};
pub use path::{
    Asymmetry, AsymmetryVerdict, CapacityFigures, Certainty, DelayVariation, Hop, Hops, MtuLimit,
    MtuProof, PATH_SCHEMA, PathDirection, PathEnd, PathResult, ProbeFigures, Prober, Proportion,
    RoundTrips, RttFigures, SentProbes, TcpSegments, Unmeasured,
};
pub use recording::{
    RECORDING_CERTIFICATE_SCHEMA, RecordingCertificate, RecordingCheck, RecordingFigure,
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
    STAMP_RECORD_SCHEMA, STAMP_SCHEMA, StampClass, StampClock, StampClocks, StampDelay,
    StampDirection, StampFigures, StampHistograms, StampNumbering, StampOrigin, StampOrigins,
    StampRecord, StampReflector, StampResult,
};
pub use step::{AloneReport, CopyEvidence, DiagnosisStep, HostUse, StepReport, StepRound};
pub use test::{
    Curve, EndFacts, Holder, LinkSummary, MeasuredHalf, Reason, Shares, SideReport,
    SideStreamReport, SideSummary, Steady, StreamResult, StreamSample, TEST_SCHEMA, TestEnd,
    TestFacts, TestHalf, TestLimit, TestPeer, TestResult, TestSample, TestSummary,
};
pub use udp::{DatagramReport, UdpCounts, UdpResult};
pub use warning::{End, Warning, WarningKind};
