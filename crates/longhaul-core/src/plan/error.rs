//! Errors of plans.

/// The reason why a plan is invalid. Nothing has been started.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A number is out of range.
    #[error("{field} is {value}, but must be {accepted}")]
    OutOfRange {
        /// The field, by the name that the user knows.
        field: &'static str,
        /// The given value.
        value: String,
        /// The accepted values.
        accepted: &'static str,
    },
    /// Two options exclude each other.
    #[error("{one} cannot be used with {other}")]
    Conflict {
        /// The first option.
        one: &'static str,
        /// The second option.
        other: &'static str,
    },
    /// An option needs another one.
    #[error("{one} needs {other}")]
    Needs {
        /// The given option.
        one: &'static str,
        /// The missing option.
        other: &'static str,
    },
}
