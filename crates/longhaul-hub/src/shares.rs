//! The share of a resource that one network can take, so that it cannot lock out the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::guard::network;

/// The most networks in memory, besides those that hold a place.
const MOST_NETWORKS: usize = 8192;

/// The places of each network.
#[derive(Debug)]
pub(crate) struct Shares {
    /// The places of one network.
    most: usize,
    places: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Shares {
    /// Permits `most` places to each network.
    pub(crate) fn new(most: usize) -> Self {
        Shares { most, places: Mutex::default() }
    }

    /// Returns the places of the network of `address`.
    pub(crate) fn of(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST_NETWORKS {
            places.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let new = || Arc::new(Semaphore::new(self.most));
        places.entry(network(address)).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_takes_its_share_only() {
        let shares = Shares::new(2);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let take = |text: &str| shares.of(address(text)).try_acquire_owned();
        let held = [take("2001:db8::1").unwrap(), take("2001:db8::2").unwrap()];
        assert!(take("2001:db8::3").is_err());
        assert!(take("2001:db8:0:1::1").is_ok());
        for number in 0..20_000u32 {
            shares.of(IpAddr::V4(number.into()));
        }
        assert!(shares.places.lock().unwrap().len() <= MOST_NETWORKS);
        assert!(take("2001:db8::3").is_err(), "a network that holds places is not forgotten");
        drop(held);
        assert!(take("2001:db8::3").is_ok());
    }
}
