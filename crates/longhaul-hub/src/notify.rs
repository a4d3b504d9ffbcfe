//! Notifications of events: programs that the hub starts.

use std::process::Stdio;
use std::time::Duration;

use longhaul_fleet::protocol::Severity;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::clock::{MINUTE, now_ms};
use crate::config::Channel;
use crate::hub::Hub;
use crate::records::events::{Event, NewEvent, sent, take_outgoing};
use crate::store::StoreError;

/// The limit on one notification.
const LIMIT: Duration = Duration::from_secs(30);
/// The attempts after which a notification is dropped.
const ATTEMPTS: i64 = 10;

/// Returns whether an event is sent: warnings, errors, and the recovery of a cell or agent.
pub(crate) fn is_notified(event: &NewEvent) -> bool {
    event.severity != Severity::Info || ["cell_good", "agent_present"].contains(&&*event.kind)
}

/// Sends the waiting notifications of this hub's channels. A failed one is repeated.
///
/// # Errors
/// The database is unavailable.
pub(crate) async fn send_waiting(hub: &Hub) -> Result<(), StoreError> {
    if hub.channels.is_empty() {
        return Ok(());
    }
    let now = now_ms();
    let waiting = hub.store.write(move |sql| take_outgoing(sql, (now, now + 2 * MINUTE))).await?;
    for one in waiting {
        let channel = hub.channels.iter().find(|channel| channel.name() == one.channel);
        let done = match channel {
            Some(Channel::Exec { program }) => exec(program, &one.event).await,
            // Another hub has this channel, or nobody any more.
            None => one.attempts + 1 >= ATTEMPTS,
        };
        if done || one.attempts + 1 >= ATTEMPTS {
            let (event, channel) = (one.event.id, one.channel);
            hub.store.write(move |sql| sent(sql, &event, &channel)).await?;
        }
    }
    Ok(())
}

/// Runs a program with the event as JSON on its standard input. Returns whether it succeeded.
async fn exec(program: &std::path::Path, event: &Event) -> bool {
    let Ok(text) = serde_json::to_vec(event) else { return false };
    let started = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut child) = started else { return false };
    let work = async {
        if let Some(mut input) = child.stdin.take() {
            // A program may ignore its input.
            let _ = input.write_all(&text).await;
        }
        child.wait().await.is_ok_and(|status| status.success())
    };
    tokio::time::timeout(LIMIT, work).await.unwrap_or(false)
}
