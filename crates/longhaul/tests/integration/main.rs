//! Whole-program tests. They make namespaces, devices, mounts and servers, so they run as root;
//! without that they fail and show why.

mod cable;
mod capture;
mod clients;
mod cp;
mod cp_beside_rsync;
mod cp_ends;
mod cp_failures;
mod cp_faults;
mod cp_host;
mod cp_paths;
mod cp_tree;
mod diagnose;
mod doctor;
mod generate;
mod host;
mod matrix;
mod matrix_real;
mod path;
mod ssh;
mod test;
mod test_ways;
mod topology;
mod wan;
mod wan_abuse;
mod wan_impairments;
mod wan_selftest;
