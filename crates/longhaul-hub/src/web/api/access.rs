//! Logins of programs, enrollment tokens, revocation.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use longhaul_fleet::api::{
    LoginRequest, LoginResponse, NewToken, REVOKED_SCHEMA, RevokedDocument, TOKEN_SCHEMA,
    TokenDocument, UserRole,
};
use longhaul_fleet::protocol::EnrollToken;

use crate::clock::now_ms;
use crate::hub::Hub;
use crate::records::agents::{add_enrollment, revoke};
use crate::secret;
use crate::web::access::{ApiCaller, Login, check_login, new_bearer};
use crate::web::connection::Client;
use crate::web::failure::Failure;

/// Makes an API token from a password.
#[utoipa::path(post, path = "/api/v1/login", request_body = LoginRequest,
    responses((status = 200, body = LoginResponse), (status = 401), (status = 429)))]
pub(crate) async fn post_login(
    State(hub): State<Arc<Hub>>,
    Extension(client): Extension<Client>,
    Json(request): Json<LoginRequest>,
) -> Result<Json<LoginResponse>, Failure> {
    match check_login(&hub, client.0.ip(), &request.user, &request.password).await? {
        Login::Granted(role) => {
            let (token, expires_ms) = new_bearer(&hub, &request.user, &request.label).await?;
            Ok(Json(LoginResponse { token, role, expires_ms }))
        }
        Login::Wrong => {
            let message = "the user or the password is wrong";
            Err(Failure::new(StatusCode::UNAUTHORIZED, "wrong_login", message))
        }
        Login::Busy => {
            let message = "too many passwords are being checked; try again later";
            Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, "busy", message))
        }
        Login::Limited { seconds } => {
            let message = format!("too many logins failed; try again in {seconds} s");
            Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_logins", message))
        }
    }
}

/// Makes a one-time token with which the agent of a host enrolls.
#[utoipa::path(post, path = "/api/v1/tokens", request_body = NewToken,
    responses((status = 200, body = TokenDocument), (status = 403)))]
pub(crate) async fn post_token(
    State(hub): State<Arc<Hub>>,
    ApiCaller(caller): ApiCaller,
    Json(request): Json<NewToken>,
) -> Result<Json<TokenDocument>, Failure> {
    caller.at_least(UserRole::Admin)?;
    if !is_host_name(&request.host) {
        return Err(Failure::bad(
            "a host name has 1 to 63 letters, digits, '-', '_' and '.', with a letter or digit first",
        ));
    }
    if !(60..=2_592_000).contains(&request.valid_seconds) {
        return Err(Failure::bad("the validity is 60 s to 30 days"));
    }
    let secret = secret::secret()?;
    let (hash, host) = (secret::hash(&secret), request.host.clone());
    let expires_ms = now_ms() + i64::from(request.valid_seconds) * 1000;
    hub.store.write(move |sql| add_enrollment(sql, &hash, &host, expires_ms)).await?;
    let token = EnrollToken { secret, pin: Some(hub.pin.clone()) }.to_string();
    let schema = TOKEN_SCHEMA.to_owned();
    Ok(Json(TokenDocument { schema, host: request.host, token, expires_ms }))
}

/// Returns whether a name can be that of a host in a mesh.
fn is_host_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Revokes the key of an agent, by its id or host.
#[utoipa::path(post, path = "/api/v1/agents/{id}/revoke",
    params(("id" = String, Path, description = "the id of the agent or the name of its host")),
    responses((status = 200, body = RevokedDocument), (status = 403), (status = 404)))]
pub(crate) async fn post_revoke(
    State(hub): State<Arc<Hub>>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> Result<Json<RevokedDocument>, Failure> {
    caller.at_least(UserRole::Admin)?;
    let now = now_ms();
    let name = id.clone();
    let revoked = hub.store.write(move |sql| revoke(sql, &name, now)).await?;
    hub.wake_all();
    let (agent, host) = revoked.ok_or_else(|| {
        let message =
            format!("{id} has no enrolled agent; 'longhaul fleet hosts' lists the agents");
        Failure::new(StatusCode::NOT_FOUND, "not_found", message)
    })?;
    Ok(Json(RevokedDocument { schema: REVOKED_SCHEMA.to_owned(), host, agent, revoked_ms: now }))
}
