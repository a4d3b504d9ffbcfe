//! Words for the errors of an agent and of requests to the hub.

use longhaul_agent::AgentError;
use longhaul_fleet::protocol::RefusalCode;

/// Returns the words for an error of an agent or of a request to the hub.
pub(super) fn agent_words(error: &AgentError) -> String {
    let hint = match error {
        AgentError::Exposed { .. } => "change its owner or run chmod go-rwx",
        AgentError::InUse(_) => "stop that agent, or use another --state",
        AgentError::NotEnrolled(_) => {
            "start it once with --hub and --token ('longhaul fleet token HOST' on the hub prints one)"
        }
        AgentError::OtherHub { .. } => "use another --state, or remove the directory",
        AgentError::NewerJournal { .. } => "use the newer longhaul",
        AgentError::Journal(_) if error.is_damaged_journal() => {
            "its file is damaged: move journal.db in the directory of the agent away, and start the \
             agent again; the results in the file are lost"
        }
        AgentError::Certificate { by_pin: true, .. } => {
            return format!("{error}: its key has another pin than the token or the login states");
        }
        AgentError::Certificate { .. } => {
            "verify it by the pin that the hub prints at its start, or by --ca"
        }
        AgentError::Refused { code: RefusalCode::Revoked, .. } => {
            "enroll again with a new token and an empty --state"
        }
        AgentError::Refused {
            code: RefusalCode::TokenUsed | RefusalCode::UnknownToken, ..
        } => "create another one with 'longhaul fleet token HOST'",
        AgentError::Refused { code: RefusalCode::OtherHost, .. } => {
            "use --name, or create a token for this host"
        }
        _ => return error.to_string(),
    };
    format!("{error}; {hint}")
}
