//! Runs only a hub, for measurements: `hub --data DIR [--listen ADDR:PORT] [--database ADDRESS] [--public]`.
//!
//! `longhaul hub` has all options.
#![allow(clippy::print_stdout)] // The output of an example.

use std::error::Error;
use std::sync::atomic::AtomicBool;

use longhaul_hub::{HubConfig, RunningHub, run};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    let config = HubConfig {
        listen: vec![value("--listen").as_deref().unwrap_or("127.0.0.1:5280").parse()?],
        database: value("--database"),
        public: words.iter().any(|word| word == "--public"),
        ..HubConfig::new(value("--data").ok_or("--data is missing")?.into())
    };
    let ready = |started: &RunningHub| {
        if let Some(password) = &started.first_password {
            println!("log in as admin with the password {password}");
        }
        for address in &started.addresses {
            println!("hub on https://{address}");
        }
        println!("the pin of the hub's key is {}", started.pin);
    };
    Ok(run(&config, &AtomicBool::new(false), ready)?)
}
