//! The errors of a mesh file.

use std::time::Duration;

use longhaul_core::units::{Rate, format_span};

/// An invalid mesh file, with the place of its first error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("line {line}, column {column}: {fault}")]
pub struct MeshError {
    /// The line, from 1.
    pub line: usize,
    /// The column in bytes, from 1.
    pub column: usize,
    /// The error.
    pub fault: MeshFault,
}

/// The errors of a mesh.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MeshFault {
    /// The text is not TOML, or a value has another type.
    #[error("{0}")]
    Syntax(String),
    /// The text is longer than the limit.
    #[error("the file has {bytes} bytes, and the limit is {most}")]
    TooLong {
        /// The length of the text.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// Too few or too many of something.
    #[error("the mesh has {count} {what}, but must have {accepted}")]
    Count {
        /// The counted objects, in the plural.
        what: &'static str,
        /// The number.
        count: usize,
        /// The accepted numbers.
        accepted: &'static str,
    },
    /// A name with characters that are not permitted.
    #[error(
        "'{name}' cannot be the name of a {what}: use 1 to 63 letters, digits, '-', '_' and '.', \
         with a letter or digit first"
    )]
    Name {
        /// The kind of the named object.
        what: &'static str,
        /// The given name.
        name: String,
    },
    /// A group with the name of a host, or a name or address that two hosts have.
    #[error("the {what} '{name}' is already in use")]
    Twice {
        /// The kind of the named object.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A reference to neither a host nor a group.
    #[error("there is no host or group '{name}'{}", nearest(.near.as_deref()))]
    UnknownHost {
        /// The unknown name.
        name: String,
        /// The most similar existing name.
        near: Option<String>,
    },
    /// A host without an interface of that name.
    #[error("host '{host}' has no interface '{interface}'")]
    UnknownInterface {
        /// The host.
        host: String,
        /// The interface.
        interface: String,
    },
    /// Two settings that exclude each other, or a missing one.
    #[error("{what} needs {needed}")]
    Needs {
        /// The part of the file.
        what: String,
        /// The required settings.
        needed: &'static str,
    },
    /// A value outside its range.
    #[error("{field} is {value}, but must be {accepted}")]
    OutOfRange {
        /// The setting.
        field: &'static str,
        /// The given value.
        value: String,
        /// The accepted values.
        accepted: &'static str,
    },
    /// A test without a pair of hosts.
    #[error("test '{test}' has no pair of two different hosts")]
    NoPairs {
        /// The test.
        test: String,
    },
    /// A test that needs an agent at a host without one.
    #[error("test '{test}' needs an agent at '{host}', which has `agent = false`")]
    NoAgent {
        /// The test.
        test: String,
        /// The host.
        host: String,
    },
    /// A pair whose addresses are of different families.
    #[error("'{source_host}' and '{destination}' have addresses of different families")]
    Family {
        /// The source's host.
        source_host: String,
        /// The destination's host.
        destination: String,
    },
    /// A rate above the capacity of a resource of a pair.
    #[error("test '{test}' has a rate of {rate}, and the capacity of {resource} is {capacity}")]
    Capacity {
        /// The test.
        test: String,
        /// The target rate or expected rate of the test.
        rate: Rate,
        /// The resource.
        resource: String,
        /// The capacity of the resource.
        capacity: Rate,
    },
    /// A test whose cycle takes longer than the time between two runs of a pair.
    #[error(
        "a cycle of test '{test}' takes {}, which is longer than `every` = {}",
        format_span(*.cycle),
        format_span(*.every)
    )]
    Cycle {
        /// The test.
        test: String,
        /// The time of a full cycle.
        cycle: Duration,
        /// The time between two runs of a pair.
        every: Duration,
    },
    /// Tests that need more than all the time of a resource.
    #[error("all tests together need {percent} % of the time of {resource}")]
    Overload {
        /// The resource.
        resource: String,
        /// The needed share of time in percent.
        percent: u64,
    },
    /// A maintenance window that does not end after its start.
    #[error("the maintenance window ends before it starts")]
    EmptyWindow,
    /// Two maintenance windows of a host with a common time.
    #[error("host '{host}' has another maintenance window from {start} to {end}")]
    Overlap {
        /// The host.
        host: String,
        /// The start of the other window (RFC 3339).
        start: String,
        /// The end of the other window (RFC 3339).
        end: String,
    },
}

fn nearest(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"))
}

/// An error with the byte offset of its place in the text.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) fault: MeshFault,
}

impl Fault {
    /// Returns the error at the start of `span`.
    pub(super) fn at(span: &std::ops::Range<usize>, fault: MeshFault) -> Self {
        Fault { offset: span.start, fault }
    }

    /// Returns the error with its line and column in `text`.
    pub(super) fn in_text(self, text: &str) -> MeshError {
        let before = &text.as_bytes()[..self.offset.min(text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        MeshError { line, column, fault: self.fault }
    }
}
