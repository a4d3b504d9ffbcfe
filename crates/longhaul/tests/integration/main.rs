//! Whole-program tests. They make namespaces, devices, mounts and servers, so they run as root;
//! without that they fail and show why.

mod clients;
mod cp;
mod cp_failures;
mod generate;
mod host;
mod matrix;
mod ssh;
mod test;
mod test_ways;
mod wan;
