//! Proof of the emulator's accuracy on this machine, by a witness that knows nothing of it.

pub mod probe;
