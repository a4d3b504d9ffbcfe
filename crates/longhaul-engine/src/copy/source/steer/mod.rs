//! Controls the number of data connections, their congestion control and their rate while a copy
//! runs.
//!
//! A copy begins with 4 to 16 connections, depending on the round trip (`streams.rs`). It doubles
//! their number, up to 16, while each doubling increases the rate by at least a tenth. It does not
//! double the number while the senders wait for the disk, and stops doubling if the rate does not
//! increase, the loss share doubles, or the processors are busy. The copy changes the congestion control only if segments are lost and BBR is available,
//! which does not treat loss as congestion.
//!
//! [`StreamPolicy`](policy::StreamPolicy), [`NicePacer`](nice::NicePacer) and
//! [`Bound`](bound::Bound) are functions of measurements, without a clock or a socket. The
//! [`StreamController`] measures the connections, and applies the decisions of the policy and of
//! the pacer to the [`SteeredStreams`]. The [`Pacemaker`] applies the [`Bound`](bound::Bound),
//! which limits the rate of the copy in favor of other traffic.
//! [`StuckConnections`](stuck::StuckConnections) finds connections that do not repair their losses.

mod after_loss;
mod bound;
mod controller;
mod nice;
mod onset;
mod pacemaker;
mod policy;
mod ramp_up;
mod sample;
mod steered;
mod stuck;

pub(super) use controller::StreamController;
pub(super) use pacemaker::Pacemaker;
pub(super) use steered::SteeredStreams;
