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
}
