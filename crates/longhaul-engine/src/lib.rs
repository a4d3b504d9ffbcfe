//! The engine: moves bytes, memory to memory and disk to disk.

pub mod flow;
