//! What is known of a path; `docs/design/results.md` has every field.

mod document;
mod figures;
mod hops;
mod words;

pub use document::{
    Asymmetry, AsymmetryVerdict, PATH_SCHEMA, PathEnd, PathResult, Prober, RoundTrips, RttFigures,
    Unmeasured, Way,
};
pub use figures::{
    CapacityFigures, Certainty, DelayVariation, ProbeFigures, Proportion, SentProbes,
};
pub use hops::{Hop, Hops, MtuLimit, MtuProof, TcpSegments};
