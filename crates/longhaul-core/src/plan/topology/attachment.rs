//! Sites that exist already: a network namespace of a container or another program.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The existing network in which a site is, instead of a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attachment {
    /// The network namespace with this name, as `ip netns` creates it.
    Namespace(String),
    /// The network namespace of the process with this id.
    Process(u32),
}

impl Attachment {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "\"netns:NAME\" or \"netns:PID\"";
}

impl FromStr for Attachment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let name = text.strip_prefix("netns:").ok_or(Self::FORM)?;
        if let Ok(process) = name.parse::<u32>() {
            return if process > 0 { Ok(Attachment::Process(process)) } else { Err(Self::FORM) };
        }
        // The name becomes a part of a path.
        let is_plain = !name.is_empty() && name.len() <= 255 && !name.starts_with('.');
        if is_plain && !name.contains(['/', '\0']) {
            return Ok(Attachment::Namespace(name.to_owned()));
        }
        Err(Self::FORM)
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attachment::Namespace(name) => write!(f, "netns:{name}"),
            Attachment::Process(process) => write!(f, "netns:{process}"),
        }
    }
}

impl Serialize for Attachment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Attachment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_read_and_printed() {
        for text in ["netns:blue", "netns:4711", "netns:clab-lab-r1"] {
            let attachment: Attachment = text.parse().unwrap();
            assert_eq!(attachment.to_string(), text);
            let json = serde_json::to_string(&attachment).unwrap();
            assert_eq!(serde_json::from_str::<Attachment>(&json).unwrap(), attachment);
        }
        assert_eq!("netns:7".parse(), Ok(Attachment::Process(7)));
        for text in ["blue", "netns:", "netns:0", "netns:../x", "netns:.x", "netns:a/b", "pid:7"] {
            assert!(text.parse::<Attachment>().is_err(), "{text}");
        }
    }
}
