//! Results: the outcome of runs. Renderers only display them.
//!
//! Names end in their units (`_bps`, `_bytes`, `_seconds`, `_ms`), and each document that outlives
//! a process states its schema, such as `"longhaul.test/1"`. `docs/design/results.md` describes all
//! documents.

mod audit;
mod certificate;
mod copy;
mod diagnosis;
mod doctor;
mod impairments;
mod latency;
mod lateness;
mod link;
mod manifest;
mod path;
mod run;
mod side;
mod test;
mod udp;
mod warning;

pub use audit::{AUDIT_SCHEMA, AuditEvent, AuditRecord};
pub use certificate::{Certificate, Check, CheckVerdict, MachineTiming, Unit};
pub use copy::{
    Action, ActionKind, AddressReport, BusyThread, COPY_SCHEMA, CopyFailure, CopyLimit, CopyResult,
    CopySummary, DigestOf, EndReport, Kept, NotKept, PathBefore, PathReport, StageTimes,
    ThreadRole, TransferEnd,
};
pub use diagnosis::{
    AloneReport, Bottleneck, CopyEvidence, Cure, CureKind, Diagnosis, DiagnosisStep, EndView, Ends,
    Gap, HostUse, Resource, SampleReport, StepReport, StepRound,
};
pub use doctor::{
    Area, DoctorReport, DoctorTarget, Finding, HostSummary, Measurement, TargetSource, Verdict,
};
pub use impairments::{Impairments, Segments};
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
pub use run::{
    Caches, CpuSeconds, Guarantees, HostLoad, Outcome, RunRecord, RunSample, RunSchema, ToolOutput,
    WorkDone,
};
pub use side::{
    HostLimits, HostSample, SideResult, SideSample, SideStream, SideStreamSample, TcpSample,
    ThreadSample,
};
pub use test::{
    Curve, EndFacts, Holder, Hosts, Limit, LinkSummary, Reason, Shares, SideReport,
    SideStreamReport, SideSummary, Steady, StreamResult, StreamSample, TEST_SCHEMA, TestEnd,
    TestFacts, TestHalf, TestPeer, TestResult, TestSample, TestSummary,
};
pub use udp::{DatagramReport, UdpCounts, UdpResult};
pub use warning::{End, Warning, WarningKind};
