//! The result of a path measurement; `docs/design/results.md` describes every field.

mod document;
mod figures;
mod hops;

pub use document::{
    Asymmetry, AsymmetryVerdict, PATH_SCHEMA, PathDirection, PathEnd, PathResult, RoundTrips,
    RttFigures, Unmeasured,
};
pub use figures::{
    CapacityFigures, Certainty, DelayVariation, ProbeFigures, Proportion, SentProbes,
};
pub use hops::{Hop, Hops, MtuLimit, MtuProof, Prober, TcpSegments};
