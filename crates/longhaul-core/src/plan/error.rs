/// Why a plan makes no sense. Nothing has been started.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A number is outside of what the program takes.
    #[error("{field} is {value}, but must be {accepted}")]
    OutOfRange {
        /// Which field, as the user knows it.
        field: &'static str,
        /// What was given.
        value: String,
        /// What would be taken.
        accepted: &'static str,
    },
    /// Two things were asked for that cannot be had together.
    #[error("{one} cannot be had with {other}")]
    Conflict {
        /// The one.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// Something was asked for that means nothing without another.
    #[error("{one} needs {other}")]
    Needs {
        /// The one.
        one: &'static str,
        /// What it needs.
        other: &'static str,
    },
}
