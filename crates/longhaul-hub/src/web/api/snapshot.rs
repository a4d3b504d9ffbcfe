//! The latest state of a host: its fastest connections and its cores.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use longhaul_fleet::api::{SNAPSHOT_SCHEMA, SnapshotDocument};

use crate::hub::Hub;
use crate::records::agents::agents;
use crate::records::snapshots::snapshot;
use crate::store::Sql;
use crate::web::access::ApiCaller;
use crate::web::failure::Failure;

/// Returns the latest state of a host. It has the addresses of the peers of the host, so a reader without
/// login may not see it.
#[utoipa::path(get, path = "/api/v1/hosts/{name}/snapshot",
    responses((status = 200, body = SnapshotDocument), (status = 403), (status = 404)))]
pub(crate) async fn get_snapshot(
    State(hub): State<Arc<Hub>>,
    ApiCaller(caller): ApiCaller,
    Path(host): Path<String>,
) -> Result<Json<SnapshotDocument>, Failure> {
    if caller.is_anonymous() {
        return Err(Failure::forbidden());
    }
    let wanted = host.clone();
    let read = move |sql: &mut dyn Sql| {
        let agent = agents(sql)?.into_iter().find(|agent| agent.host == wanted);
        agent.map_or(Ok(None), |agent| snapshot(sql, &agent.id))
    };
    let snapshot = hub.store.read(read).await?.ok_or_else(|| Failure::not_found("snapshot"))?;
    Ok(Json(SnapshotDocument { schema: SNAPSHOT_SCHEMA.to_owned(), host, snapshot }))
}
