//! Tests of the hub: the store over both databases, the server, its messages, and attacks. Those of
//! the pages in a browser are a separate package, see `browser/`.

mod agents;
mod client;
mod forecast;
mod hostile;
mod hostile_agent;
mod limits;
mod lists;
mod load;
mod outgoing;
mod postgres;
mod receiver;
mod retention;
mod server;
mod store;
mod store_intake;
mod store_journal;
mod store_load;
mod store_people;
