//! The login and the logout.

use std::sync::Arc;

use axum::extract::{Extension, Form, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use serde::Deserialize;

use super::layout::page;
use crate::hub::Hub;
use crate::web::access::{Login, PageCaller, check_login, close_session, open_session};
use crate::web::connection::Client;
use crate::web::failure::Failure;

/// Returns the form of the login with a sentence about the last attempt.
pub(super) fn form(status: StatusCode, sentence: &str) -> Response {
    let main = html! {
        h1 { "Log in" }
        @if !sentence.is_empty() { p.bad role="alert" { (sentence) "." } }
        form.login method="post" action="/login" {
            p { label { "User " input name="user" autocomplete="username" required maxlength="64" autofocus; } }
            p { label { "Password " input name="password" type="password" autocomplete="current-password" required maxlength="1024"; } }
            p { button { "Log in" } }
        }
    };
    let mut response = page("Log in", None, false, &main);
    *response.status_mut() = status;
    response
}

/// `GET /login`.
pub(super) async fn get_login() -> Response {
    form(StatusCode::OK, "")
}

/// The fields of the login.
#[derive(Deserialize)]
pub(super) struct LoginForm {
    user: String,
    password: String,
}

/// `POST /login`.
pub(super) async fn post_login(
    State(hub): State<Arc<Hub>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    Form(login): Form<LoginForm>,
) -> Result<Response, Failure> {
    // A form of another origin, also of the same site, could log a browser in as another user.
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    if site.is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return Err(Failure::csrf());
    }
    Ok(match check_login(&hub, client.0.ip(), &login.user, &login.password).await? {
        Login::Granted(role) => {
            let cookie = open_session(&hub, &login.user, role).await?;
            ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        Login::Wrong => form(StatusCode::UNAUTHORIZED, "The user or the password is wrong"),
        Login::Busy => {
            let sentence = "Too many passwords are being checked; try again later";
            form(StatusCode::TOO_MANY_REQUESTS, sentence)
        }
        Login::Limited { seconds } => {
            let sentence = format!("Too many logins failed; try again in {seconds} s");
            form(StatusCode::TOO_MANY_REQUESTS, &sentence)
        }
    })
}

/// The fields of the logout.
#[derive(Deserialize)]
pub(super) struct LogoutForm {
    csrf: String,
}

/// `POST /logout`.
pub(super) async fn post_logout(
    State(hub): State<Arc<Hub>>,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(form): Form<LogoutForm>,
) -> Result<Response, Failure> {
    caller.ok_or_else(Failure::login)?.sent_form(&form.csrf)?;
    let cookie = close_session(&hub, &headers).await?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/login")).into_response())
}
