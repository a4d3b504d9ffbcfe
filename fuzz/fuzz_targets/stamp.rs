//! The fuzz target `stamp`; `fuzz/README.md` lists the targets and their inputs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| longhaul_fuzz::run("stamp", data));
