//! Recorded ladders.
