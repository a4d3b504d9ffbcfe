//! The fuzz target `iperf3`; `fuzz/README.md` lists the targets and their inputs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| longhaul_fuzz::iperf3::iperf3(data));
