//! Notifications of events: each channel sends its queue in its own task.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use axum::http::header;
use longhaul_fleet::protocol::Severity;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::{DeliveryError, http, mail};
use crate::clock::{HOUR, SECOND, now_ms};
use crate::config::Channel;
use crate::hub::Hub;
use crate::records::events::{Event, NewEvent, Outgoing, postpone, sent, take_outgoing};
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
            let pause = (PAUSE_MS << one.attempts.clamp(0, 10)).min(HOUR);
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
    let name = channel.name();
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
        origin: format!("notification_dropped/{name}/{}", one.event.id),
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

/// Runs a program with the event as JSON on its standard input.
async fn exec(program: &Path, event: &Event) -> Result<(), DeliveryError> {
    let text = serde_json::to_vec(event).map_err(DeliveryError::forever)?;
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(DeliveryError::for_now)?;
    if let Some(mut input) = child.stdin.take() {
        // A program may ignore its input.
        let _ = input.write_all(&text).await;
    }
    let status = child.wait().await.map_err(DeliveryError::for_now)?;
    if status.success() {
        Ok(())
    } else {
        Err(DeliveryError::for_now(format!("the program ended with {status}")))
    }
}
