//! Tests of the hub: the store over both databases, and the server.

mod client;
mod postgres;
mod server;
mod store;
