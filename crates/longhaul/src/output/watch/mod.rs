//! The displays of `longhaul watch`: the terminal display, and lines of text.

mod draw;
mod graph;
mod plain;
mod state;
mod tables;
mod terminal;

pub(crate) use plain::watch_lines;
pub(crate) use state::WatchView;
pub(crate) use terminal::WatchTerminal;
