//! Tests of the program. They create namespaces, devices, mounts and servers, so they need root and
//! fail for other users.

mod admission;
mod audit;
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
mod cp_space;
mod cp_tree;
mod diagnose;
mod doctor;
mod generate;
mod habits;
mod host;
mod keys;
mod matrix;
mod matrix_real;
mod output;
mod path;
mod serve_rights;
mod ssh;
mod test;
mod test_options;
mod topology;
mod wan;
mod wan_abuse;
mod wan_impairments;
mod wan_selftest;
