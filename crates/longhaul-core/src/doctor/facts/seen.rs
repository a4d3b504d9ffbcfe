use std::fmt;

/// A fact, or why it is not known.
pub type Seen<T> = Result<T, Unseen>;

/// A fact that could not be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// The file or call that would have told it.
    pub what: String,
    /// Why it did not.
    pub cause: Cause,
}

/// Why a file or call told nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// This user may not.
    Denied,
    /// There is no such file, or the kernel or driver has no such thing.
    Absent,
    /// Anything else, in words.
    Failed(String),
}

impl Unseen {
    /// `what` is not there.
    pub fn absent(what: impl Into<String>) -> Self {
        Unseen { what: what.into(), cause: Cause::Absent }
    }

    /// `what` says something that is not understood.
    pub fn odd(what: impl Into<String>, text: &str) -> Self {
        let shown: String = text.trim().chars().take(40).collect();
        Unseen { what: what.into(), cause: Cause::Failed(format!("it says '{shown}'")) }
    }
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Denied => write!(f, "{}: permission denied", self.what),
            Cause::Absent => write!(f, "{}: not there", self.what),
            Cause::Failed(how) => write!(f, "{}: {how}", self.what),
        }
    }
}
