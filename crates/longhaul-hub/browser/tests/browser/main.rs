//! The hub's pages in Chromium, as a person uses them. Starts the compiled `longhaul hub`, see [`hub`].

#[allow(dead_code)] // The tests of the hub use all of it.
#[path = "../../../tests/hub/agents.rs"]
mod agents;
#[allow(dead_code)] // As above.
#[path = "../../../tests/hub/client.rs"]
mod client;
mod driver;
mod hub;
mod keyboard;
mod pages;
