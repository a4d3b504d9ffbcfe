//! The fuzz target `frame`; `fuzz/README.md` lists the targets and their inputs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| longhaul_emu::exercise_frame(data));
