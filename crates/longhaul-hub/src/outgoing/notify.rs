//! Notifications of events: each channel sends its queue in its own task.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use axum::http::header;
use longhaul_fleet::protocol::Severity;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::{DeliveryError, http, mail};
use crate::clock::{SECOND, now_ms};
use crate::config::Channel;
use crate::hub::Hub;
use crate::records::events::{
    Event, MOST_PAUSE_MS, NewEvent, Outgoing, postpone, sent, take_outgoing,
};
use crate::store::StoreError;

/// The limit on one attempt.
const LIMIT: Duration = Duration::from_secs(30);
/// The time in ms for which an attempt reserves its notification: other hubs do not send it.
const RESERVED_MS: i64 = 60 * SECOND;
/// The attempts after which a notification is dropped.
const ATTEMPTS: i64 = 10;
/// The pause after the first failure in ms; it doubles with each failure up to an hour.
const PAUSE_MS: i64 = 30 * SECOND;

/// Sends the waiting notifications of a channel, one after the other. A failed one is repeated
/// after a pause, during which the others are sent.
///
/// # Errors
/// The database is unavailable.
pub(crate) async fn send_waiting(hub: &Hub, channel: &Channel) -> Result<(), StoreError> {
    loop {
        let (name, now) = (channel.name(), now_ms());
        let take = move |sql: &mut dyn crate::store::Sql| {
            take_outgoing(sql, &name, (now, now + RESERVED_MS))
        };
        let Some(one) = hub.store.write(take).await? else { return Ok(()) };
        let attempt = tokio::time::timeout(LIMIT, deliver(hub, channel, &one.event)).await;
        let late =
            || Err(DeliveryError::for_now(format!("no answer within {} s", LIMIT.as_secs())));
        settle(hub, channel, one, attempt.unwrap_or_else(|_| late())).await?;
    }
}

/// Removes a notification that was delivered or has failed too often, and postpones another.
async fn settle(
    hub: &Hub,
    channel: &Channel,
    one: Outgoing,
    outcome: Result<(), DeliveryError>,
) -> Result<(), StoreError> {
    let (event, name) = (one.event.id.clone(), channel.name());
    match outcome {
        Err(failure) if !failure.permanent && one.attempts + 1 < ATTEMPTS => {
            let pause = (PAUSE_MS << one.attempts.clamp(0, 10)).min(MOST_PAUSE_MS);
            let next = now_ms() + pause;
            hub.store.write(move |sql| postpone(sql, (&event, &name), next)).await
        }
        outcome => {
            hub.store.write(move |sql| sent(sql, &event, &name)).await?;
            match outcome {
                Ok(()) => Ok(()),
                Err(failure) => hub.record(vec![dropped(channel, &one, &failure)]).await,
            }
        }
    }
}

/// Returns the event of a notification that was not delivered. This event causes no notification.
fn dropped(channel: &Channel, one: &Outgoing, failure: &DeliveryError) -> NewEvent {
    let name = channel.public_name();
    NewEvent {
        at_ms: now_ms(),
        severity: Severity::Warning,
        kind: "notification_dropped".to_owned(),
        subject: name.clone(),
        message: format!(
            "the notification of event {} by {name} was dropped after {} attempts: {}",
            one.event.id,
            one.attempts + 1,
            failure.reason
        ),
        origin: format!("notification_dropped/{}/{}", channel.name(), one.event.id),
    }
}

async fn deliver(hub: &Hub, channel: &Channel, event: &Event) -> Result<(), DeliveryError> {
    match channel {
        Channel::Exec { program } => exec(program, event).await,
        Channel::Webhook { url } => {
            let body = serde_json::to_vec(event).map_err(DeliveryError::forever)?;
            let kind = [(header::CONTENT_TYPE, "application/json")];
            http::post(&hub.outgoing_tls, url, &kind, body).await
        }
        Channel::Mail { server, from, to } => {
            let message = mail::message(event, from, to);
            server.submit(&hub.outgoing_tls, (from, to), &message).await
        }
    }
}

/// Runs a program with the event as JSON on its standard input. If the returned future is dropped, for
/// example after the limit, the program and the processes that it started are killed.
async fn exec(program: &Path, event: &Event) -> Result<(), DeliveryError> {
    let text = serde_json::to_vec(event).map_err(DeliveryError::forever)?;
    let child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = child.map_err(DeliveryError::for_now)?;
    let mut group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    if let Some(mut input) = child.stdin.take() {
        // A program may ignore its input.
        let _ = input.write_all(&text).await;
    }
    let status = child.wait().await.map_err(DeliveryError::for_now)?;
    // The number of an ended process can belong to another one soon.
    group.0 = None;
    if status.success() {
        Ok(())
    } else {
        Err(DeliveryError::for_now(format!("the program ended with {status}")))
    }
}

/// The process group of a program, which has the number of its first process. Its drop kills the
/// group while that process has not been waited for.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The processes may have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            id: "0198-1".to_owned(),
            at_ms: 1_700_000_000_000,
            severity: Severity::Error,
            kind: "cell_critical".to_owned(),
            subject: "a > b".to_owned(),
            message: "loss\n\u{1b}[2J $(reboot) `id`".to_owned(),
            repeats: 1,
            acknowledged_by: None,
            acknowledged_ms: None,
        }
    }

    /// Writes a script, which the kernel runs by its first line.
    fn script(dir: &Path, name: &str, text: &str) -> std::path::PathBuf {
        let path = dir.join(name);
        // Another process writes it: a fork of a parallel test would keep it open for writing, and the
        // kernel refuses to execute it then (ETXTBSY).
        let written = std::process::Command::new("sh")
            .args(["-c", "printf '#!/bin/sh\\n%s' \"$1\" > \"$0\" && chmod 700 \"$0\""])
            .arg(&path)
            .arg(text)
            .status();
        assert!(written.unwrap().success());
        path
    }

    #[tokio::test]
    async fn a_program_gets_the_event_and_its_status_counts() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let program = script(dir.path(), "good", &format!("cat > '{}'", out.display()));
        assert_eq!(exec(&program, &event()).await, Ok(()));
        let found: Event = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        assert_eq!(found, event());
        let failed = exec(&script(dir.path(), "bad", "exit 3"), &event()).await.unwrap_err();
        assert!(!failed.permanent && failed.reason.contains("exit status: 3"), "{failed:?}");
        let missing = exec(&dir.path().join("none"), &event()).await.unwrap_err();
        assert!(!missing.permanent, "the operator can install it: {missing:?}");
        // It reads nothing and writes without end; nobody keeps its output.
        let noisy = script(dir.path(), "noisy", "exec 0<&-; head -c 300000000 /dev/zero");
        assert_eq!(exec(&noisy, &event()).await, Ok(()));
    }

    #[tokio::test]
    async fn a_program_without_end_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let endless = format!("sleep 1000 & echo $$ $! > '{}'; wait", pids.display());
        let program = script(dir.path(), "endless", &endless);
        let (read, event) = (|| std::fs::read_to_string(&pids).unwrap_or_default(), event());
        let attempt = async {
            tokio::select! {
                ended = exec(&program, &event) => panic!("{ended:?}"),
                () = async {
                    while !read().ends_with('\n') {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                } => {}
            }
        };
        tokio::time::timeout(Duration::from_secs(60), attempt).await.expect("the program starts");
        for pid in read().split_whitespace() {
            let stat = std::path::PathBuf::from(format!("/proc/{pid}/stat"));
            // A zombie has ended; its parent may not have waited for it.
            let runs = || std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while runs() {
                assert!(std::time::Instant::now() < deadline, "process {pid} still runs");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
