//! The checks of an enrollment: its file, the connection to the hub, and the hub's acceptance of the
//! key.

use std::path::Path;
use std::time::SystemTime;

use longhaul_fleet::protocol::{CHECK_PATH, EnrollResponse, RefusalCode};
use serde_json::Value;

use super::{CheckItem, CheckResult, of};
use crate::agent::AgentOptions;
use crate::client::{HubClient, Trust};
use crate::error::{AgentError, Result};
use crate::home::{Enrollment, Home};
use crate::signer::Signer;

/// Checks the enrollment in `home`, the hub, and the acceptance of the key. Without an enrollment it
/// checks the hub to which the options would enroll.
pub(super) fn check_enrollment(options: &AgentOptions, home: Option<&Home>) -> Vec<CheckItem> {
    let item = |name, result| CheckItem { name, result };
    let enrollment = match home.map_or(Ok(None), Home::enrollment) {
        Ok(enrollment) => enrollment,
        Err(error) => return vec![item("enrollment", CheckResult::Failed(error))],
    };
    if let (Some(enrollment), Some(home)) = (enrollment, home) {
        let text = format!("{} as {}", enrollment.host, enrollment.agent);
        let mut items = vec![item("enrollment", CheckResult::Passed(text))];
        let trust = Trust::of(enrollment.pin.as_deref(), options.ca.as_deref());
        let (reached, client) = check_hub(&enrollment.hub, &trust);
        items.push(item("hub", reached));
        if let Some(client) = client {
            let accepted = check_accepted(&client, home, &enrollment, &options.state);
            items.push(item("accepted", of(accepted)));
        }
        return items;
    }
    let (Some(hub), Some(token)) = (&options.hub, &options.token) else {
        let error = AgentError::NotEnrolled(options.state.clone());
        return vec![item("enrollment", CheckResult::Failed(error))];
    };
    let text = "at the first start, by the token".to_owned();
    let trust = Trust::of(token.pin.as_deref(), options.ca.as_deref());
    let (reached, _) = check_hub(&hub.to_string(), &trust);
    vec![item("enrollment", CheckResult::Passed(text)), item("hub", reached)]
}

/// Checks that the hub answers with an accepted certificate; any answer is good. Returns a client
/// if it does.
fn check_hub(hub: &str, trust: &Trust) -> (CheckResult, Option<HubClient>) {
    let begun = SystemTime::now();
    let url = match hub.parse() {
        Ok(url) => url,
        Err(error) => return (CheckResult::Wrong(format!("{hub}: {error}")), None),
    };
    let client = match HubClient::new(url, trust) {
        Ok(client) => client,
        Err(error) => return (CheckResult::Failed(error), None),
    };
    let answer: Result<Value> = client.get("/api/v1/openapi.json", &[]);
    match answer {
        Err(error @ (AgentError::Unreachable { .. } | AgentError::Certificate { .. })) => {
            (CheckResult::Failed(error), None)
        }
        _ => {
            let elapsed = begun.elapsed().unwrap_or_default().as_millis();
            (CheckResult::Passed(format!("{hub} answers in {elapsed} ms")), Some(client))
        }
    }
}

/// Asks the hub, by a signed request that changes nothing, to recognize the key of the agent.
fn check_accepted(
    client: &HubClient,
    home: &Home,
    enrollment: &Enrollment,
    state: &Path,
) -> Result<String> {
    let Some(identity) = home.known_identity()? else {
        let missing = std::io::Error::from(rustix::io::Errno::NOENT);
        return Err(AgentError::file("read", state.join("identity"))(missing));
    };
    let signer = Signer { identity: &identity, agent: &enrollment.agent };
    // The hub does not store the counter of this request, so a running agent keeps its own.
    let headers = signer.headers(("GET", CHECK_PATH), 0, b"");
    let headers = headers.map_err(AgentError::file("use", state.join("identity")))?;
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    match client.get::<EnrollResponse>(CHECK_PATH, &headers) {
        Ok(answer) => Ok(format!("the hub accepts the key of {}", answer.host)),
        // The path is unknown to a hub of an earlier version.
        Err(AgentError::Refused { code: RefusalCode::Other, .. }) => {
            Ok("not checked: the hub has an earlier version".to_owned())
        }
        Err(error) => Err(error),
    }
}
