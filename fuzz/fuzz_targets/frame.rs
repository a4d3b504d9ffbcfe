#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| longhaul_emu::exercise_frame(data));
