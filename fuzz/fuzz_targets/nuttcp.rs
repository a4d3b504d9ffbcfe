//! The fuzz target `nuttcp`; `fuzz/README.md` lists the targets and their inputs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| longhaul_fuzz::nuttcp::nuttcp(data));
