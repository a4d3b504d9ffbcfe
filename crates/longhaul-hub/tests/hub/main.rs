//! Tests of the hub: the store over both databases, and the server.

mod postgres;
mod store;
