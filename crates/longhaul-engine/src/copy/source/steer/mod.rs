//! Controls the number of data connections, their congestion control and their rate while a copy
//! runs.
//!
//! A copy begins with four connections and doubles them while that increases the rate by a tenth.
//! It stops when the rate does not increase, when more is lost, when the senders wait for the disk
//! rather than for the network, or when the processors are busy. The congestion control is changed
//! only if segments are lost and BBR, which does not take loss for congestion, is available.
//!
//! The decisions ([`StreamPolicy`](policy::StreamPolicy), [`NicePacer`](nice::NicePacer)) are functions of
//! measurements, without clock or socket, and are tested as such. The [`StreamController`]
//! measures, and applies the decisions to the [`SteeredStreams`]. The [`Pacemaker`] does so with the
//! [`Bound`](bound::Bound) on the rate beside other traffic.

mod bound;
mod controller;
mod nice;
mod onset;
mod pacemaker;
mod policy;
mod steered;

pub(super) use controller::StreamController;
pub(super) use pacemaker::Pacemaker;
pub(super) use steered::SteeredStreams;
