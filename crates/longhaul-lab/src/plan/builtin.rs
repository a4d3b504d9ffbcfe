/// A plan that ships with the program. Its text is a plan file like any user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    /// Ends in under five minutes on two cores.
    Quick,
    /// The published conditions with longer tests and three repeats.
    Default,
}

impl Builtin {
    /// What stands for a file name in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Builtin::Quick => "built-in plan quick",
            Builtin::Default => "built-in plan default",
        }
    }

    /// The plan's TOML.
    pub const fn text(self) -> &'static str {
        match self {
            Builtin::Quick => include_str!("quick.toml"),
            Builtin::Default => include_str!("default.toml"),
        }
    }
}
