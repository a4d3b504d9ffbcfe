//! The plan and the application of a mesh.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use longhaul_fleet::api::{
    APPLY_SCHEMA, ApplyDocument, LoadDocument, MeshText, PlanDocument, UserRole, plan_document,
};
use longhaul_fleet::change::{changes, outdated_tasks};
use longhaul_fleet::mesh::{self, Mesh};
use longhaul_fleet::protocol::RunReason;
use longhaul_fleet::schedule::{Schedule, TaskState};

use crate::clock::now_ms;
use crate::fleet::{Applied, refreshed};
use crate::hub::{Hub, PageMessage};
use crate::records::leases::{cancel, open_runs};
use crate::records::meshes::{StoredMesh, add_mesh};
use crate::records::meshes::{remove_task, set_task_state, task_states};
use crate::store::{Lock, Sql, StoreError};
use crate::web::access::ApiCaller;
use crate::web::failure::Failure;

/// The longest wait for a turn.
const TURN: Duration = Duration::from_secs(20);

/// Returns the applied mesh as its text.
#[utoipa::path(get, path = "/api/v1/mesh", responses((status = 200, body = MeshText), (status = 404)))]
pub(crate) async fn get_mesh(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
) -> Result<Json<MeshText>, Failure> {
    let applied = hub.refresh().await?.ok_or_else(|| Failure::not_found("mesh"))?;
    let revision = Some(applied.revision.unsigned_abs());
    Ok(Json(MeshText { text: applied.text.clone(), revision }))
}

/// Returns the effect of a mesh without applying it.
#[utoipa::path(post, path = "/api/v1/mesh/plan", request_body = MeshText,
    responses((status = 200, body = PlanDocument), (status = 400)))]
pub(crate) async fn post_plan(
    State(hub): State<Arc<Hub>>,
    ApiCaller(caller): ApiCaller,
    Json(request): Json<MeshText>,
) -> Result<Json<PlanDocument>, Failure> {
    if caller.name.is_empty() {
        return Err(Failure::login());
    }
    Ok(Json(plan_text(&hub, &request.text).await?))
}

/// Applies a mesh: only the tasks that differ are planned again.
#[utoipa::path(post, path = "/api/v1/mesh/apply", request_body = MeshText,
    responses((status = 200, body = ApplyDocument), (status = 400), (status = 403), (status = 409)))]
pub(crate) async fn post_apply(
    State(hub): State<Arc<Hub>>,
    ApiCaller(caller): ApiCaller,
    Json(request): Json<MeshText>,
) -> Result<Json<ApplyDocument>, Failure> {
    caller.at_least(UserRole::Admin)?;
    Ok(Json(apply_text(&hub, request, &caller.name).await?))
}

/// Reads a mesh and computes its schedule.
async fn scheduled(hub: &Hub, text: &str) -> Result<(Mesh, Schedule), Failure> {
    let text = text.to_owned();
    let work = move || {
        let mesh = mesh::parse(&text)?;
        let schedule = Schedule::new(&mesh);
        Ok((mesh, schedule))
    };
    computed(hub, work).await
}

/// Does `work` on a thread that may take some time, when it is its turn.
async fn computed<T: Send + 'static>(
    hub: &Hub,
    work: impl FnOnce() -> Result<T, mesh::MeshError> + Send + 'static,
) -> Result<T, Failure> {
    let turn = tokio::time::timeout(TURN, hub.plans.clone().acquire_owned()).await;
    let busy = || Failure::busy("other meshes are being planned; try again in a minute");
    let turn = turn.ok().and_then(Result::ok).ok_or_else(busy)?;
    let work = move || {
        // The turn lasts until the work ends, also if its client has left.
        let _turn = turn;
        work()
    };
    let done = tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Failure::bad("the mesh is too large"))?;
    done.map_err(|error| Failure::bad(format!("the mesh is invalid: {error}")))
}

/// Returns the plan of a mesh.
///
/// # Errors
/// The mesh is invalid or the database is unavailable.
pub(crate) async fn plan_text(hub: &Hub, text: &str) -> Result<PlanDocument, Failure> {
    let applied = hub.refresh().await?;
    let text = text.to_owned();
    let work = move || {
        let revision = applied.as_ref().map_or(0, |applied| applied.revision.unsigned_abs());
        let applied = applied.as_ref().map(|applied| &applied.mesh);
        Ok(plan_document(&mesh::parse(&text)?, applied, revision))
    };
    computed(hub, work).await
}

/// Returns the loads of a schedule, the highest share first.
pub(super) fn load_documents(schedule: &Schedule) -> Vec<LoadDocument> {
    let document = |load: &longhaul_fleet::schedule::ResourceLoad| LoadDocument {
        resource: load.resource.clone(),
        capacity_bps: load.capacity_bps.bps(),
        busy_share: load.busy_share,
        mean_bps: load.mean_bps.bps(),
        light_bps: load.light_bps.bps(),
    };
    let mut all: Vec<LoadDocument> = schedule.load.iter().map(document).collect();
    all.sort_by(|a, b| b.busy_share.total_cmp(&a.busy_share));
    all
}

/// Applies a mesh.
///
/// # Errors
/// The mesh is invalid, another one was applied meanwhile, or the database is unavailable.
pub(crate) async fn apply_text(
    hub: &Hub,
    request: MeshText,
    person: &str,
) -> Result<ApplyDocument, Failure> {
    let (mesh, schedule) = scheduled(hub, &request.text).await?;
    let schedule = Arc::new(schedule);
    let (known, person, now) = (hub.applied(), person.to_owned(), now_ms());
    let (mesh, revision) = (Arc::new(mesh), request.revision);
    let name = mesh.name.clone();
    let apply = move |sql: &mut dyn Sql| {
        sql.lock(Lock::Planning)?;
        let old = refreshed(sql, known.as_ref())?;
        let present = old.as_ref().map_or(0, |old| old.revision);
        if revision.is_some_and(|revision| revision != present.unsigned_abs()) {
            return Ok(Err(present));
        }
        let lines = changes(old.as_ref().map(|old| &old.mesh), &mesh);
        if lines.is_empty() && old.is_some() {
            return Ok(Ok((present, lines)));
        }
        let stored = StoredMesh {
            revision: present + 1,
            name: mesh.name.clone(),
            text: request.text.clone(),
            applied_ms: now,
            person: person.clone(),
        };
        add_mesh(sql, &stored)?;
        replace_tasks(sql, old.as_deref(), &mesh, &schedule, now)?;
        Ok(Ok((present + 1, lines)))
    };
    match hub.store.write(apply).await? {
        Err(present) => Err(Failure::new(
            StatusCode::CONFLICT,
            "other_revision",
            format!("revision {present} was applied meanwhile; plan again"),
        )),
        Ok((revision, lines)) => {
            hub.refresh().await?;
            hub.wake_all();
            let _ = hub.live.send(PageMessage::Changed);
            Ok(ApplyDocument {
                schema: APPLY_SCHEMA.to_owned(),
                mesh: name,
                revision: revision.unsigned_abs(),
                changes: lines.iter().map(ToString::to_string).collect(),
            })
        }
    }
}

/// Cancels the runs of outdated tasks, and adds and removes the states of tasks.
fn replace_tasks(
    sql: &mut dyn Sql,
    old: Option<&Applied>,
    mesh: &Mesh,
    schedule: &Schedule,
    now: i64,
) -> Result<(), StoreError> {
    let outdated = old.map(|old| outdated_tasks(&old.mesh, mesh)).unwrap_or_default();
    for run in open_runs(sql)? {
        let id = run.names.join("/");
        if outdated.contains(&id) || schedule.task(&id).is_none() {
            cancel(sql, &run.run, RunReason::MeshChanged, now)?;
        }
    }
    let states = task_states(sql)?;
    for id in states.keys().filter(|id| schedule.task(id).is_none() || outdated.contains(*id)) {
        remove_task(sql, id)?;
    }
    for task in &schedule.tasks {
        if !states.contains_key(&task.id) || outdated.contains(&task.id) {
            set_task_state(sql, &task.id, &TaskState::new(now))?;
        }
    }
    Ok(())
}
