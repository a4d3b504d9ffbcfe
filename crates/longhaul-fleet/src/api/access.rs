//! Logins, tokens and revocations.

use serde::{Deserialize, Serialize};

/// The schema of [`TokenDocument`].
pub const TOKEN_SCHEMA: &str = "longhaul.fleet-token/1";

/// The schema of [`RevokedDocument`].
pub const REVOKED_SCHEMA: &str = "longhaul.fleet-revoked/1";

/// The rights of a user or API token. Each role has the rights of the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum UserRole {
    /// Reads everything except secrets.
    Viewer,
    /// Acknowledges events, and starts and cancels runs.
    Operator,
    /// Applies meshes, creates tokens, revokes agents.
    Admin,
}

/// The body of `POST /api/v1/login`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoginRequest {
    /// The name of the user.
    pub user: String,
    /// The password.
    pub password: String,
    /// The name of the new API token, shown in the list of tokens, such as the name of a host.
    pub label: String,
}

/// The answer to a login.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoginResponse {
    /// The bearer token for `authorization`.
    pub token: String,
    /// The rights of the token.
    pub role: UserRole,
    /// The end of the token, in ms since 1970.
    pub expires_ms: i64,
}

/// The name of the file with a [`LocalLogin`] in the directory of a hub.
pub const LOCAL_LOGIN_FILE: &str = "local.json";

/// A login to a hub on its own host. Only the user of the hub can read its file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalLogin {
    /// The URL of the hub.
    pub hub: String,
    /// The pin of the hub's key.
    pub pin: String,
    /// The bearer token, which has the rights of an admin and is valid until the hub ends.
    pub token: String,
}

/// The body of `POST /api/v1/tokens`: a request for an enrollment token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewToken {
    /// The name of the host that may enroll.
    pub host: String,
    /// The validity in seconds; 60 to 2592000.
    pub valid_seconds: u32,
}

/// A new enrollment token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenDocument {
    /// [`TOKEN_SCHEMA`].
    pub schema: String,
    /// The name of the host.
    pub host: String,
    /// `SECRET.PIN`, see [`EnrollToken`](crate::protocol::EnrollToken).
    pub token: String,
    /// The end of its validity, in ms since 1970.
    pub expires_ms: i64,
}

/// The answer to `POST /api/v1/agents/{id}/revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RevokedDocument {
    /// [`REVOKED_SCHEMA`].
    pub schema: String,
    /// The name of the host.
    pub host: String,
    /// The id of the revoked agent.
    pub agent: String,
    /// The time of the revocation, in ms since 1970.
    pub revoked_ms: i64,
}
