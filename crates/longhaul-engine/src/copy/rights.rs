/// What may be done in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rights {
    /// Read and write.
    #[default]
    Full,
    /// Read alone.
    ReadOnly,
    /// Put in new things, and neither read, list, replace nor delete: a drop box.
    WriteOnly,
}

impl Rights {
    /// Whether files may be read and their names listed.
    pub fn may_read(self) -> bool {
        self != Rights::WriteOnly
    }

    /// Whether new things may be made.
    pub fn may_create(self) -> bool {
        self != Rights::ReadOnly
    }

    /// Whether what is there may be replaced, changed or deleted.
    pub fn may_replace(self) -> bool {
        self == Rights::Full
    }

    /// What both allow.
    pub fn and(self, other: Rights) -> Option<Rights> {
        match (self, other) {
            (Rights::Full, rights) | (rights, Rights::Full) => Some(rights),
            (one, other) => (one == other).then_some(one),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_box_takes_and_does_not_give() {
        assert!(Rights::WriteOnly.may_create());
        assert!(!Rights::WriteOnly.may_read() && !Rights::WriteOnly.may_replace());
        assert!(Rights::ReadOnly.may_read() && !Rights::ReadOnly.may_create());
    }

    #[test]
    fn limits_add_up() {
        assert_eq!(Rights::Full.and(Rights::ReadOnly), Some(Rights::ReadOnly));
        assert_eq!(Rights::ReadOnly.and(Rights::ReadOnly), Some(Rights::ReadOnly));
        assert_eq!(Rights::ReadOnly.and(Rights::WriteOnly), None);
    }
}
