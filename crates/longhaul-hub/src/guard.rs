//! The limits per network: *places*, the permits to use a limited resource. Their memory is bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Returns the name of the network of `address`: an IPv4 address, or a /64 of IPv6.
pub(crate) fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        // A host commonly has a whole /64.
        IpAddr::V6(address) => format!("{:x}", u128::from(address) >> 64),
    }
}

/// The maximum number of networks in memory, besides those that hold a place.
const MOST_NETWORKS: usize = 8192;

/// The places of each network.
#[derive(Debug)]
pub(crate) struct Shares {
    /// The places of one network.
    most: usize,
    places: Mutex<HashMap<(String, bool), Arc<Semaphore>>>,
}

impl Shares {
    /// Permits `most` places to each network.
    pub(crate) fn new(most: usize) -> Self {
        Shares { most, places: Mutex::default() }
    }

    /// Returns the places of the network of `address`: one set for authenticated senders, and one
    /// for others.
    pub(crate) fn of(&self, address: IpAddr, proven: bool) -> Arc<Semaphore> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST_NETWORKS {
            places.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let new = || Arc::new(Semaphore::new(self.most));
        places.entry((network(address), proven)).or_insert_with(new).clone()
    }
}

/// The places of a resource: all of them, and those of one network.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    shares: Shares,
}

/// A taken place; its drop frees it.
#[derive(Debug)]
pub(crate) struct Place {
    _share: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Places {
    /// Permits `most` places, and `of_network` places to each network.
    pub(crate) fn new(most: usize, of_network: usize) -> Self {
        Places { all: Arc::new(Semaphore::new(most)), shares: Shares::new(of_network) }
    }

    /// Takes a place for `address`. Returns `None` if none is free within `limit`.
    pub(crate) async fn take(&self, address: IpAddr, limit: Duration) -> Option<Place> {
        let place = async {
            let share = self.shares.of(address, true).acquire_owned().await.ok()?;
            let place = self.all.clone().acquire_owned().await.ok()?;
            Some(Place { _share: share, _place: place })
        };
        tokio::time::timeout(limit, place).await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_free_again_after_use() {
        let places = Places::new(2, 1);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let take = |text: &str| places.take(address(text), Duration::ZERO);
        let first = take("192.0.2.1").await.unwrap();
        assert!(take("192.0.2.1").await.is_none(), "the share of the network");
        let _second = take("192.0.2.2").await.unwrap();
        assert!(take("192.0.2.3").await.is_none(), "all places");
        drop(first);
        assert!(take("192.0.2.3").await.is_some());
    }

    #[test]
    fn a_network_takes_its_share_only() {
        let shares = Shares::new(2);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let take = |text: &str| shares.of(address(text), true).try_acquire_owned();
        let held = [take("2001:db8::1").unwrap(), take("2001:db8::2").unwrap()];
        assert!(take("2001:db8::3").is_err());
        assert!(take("2001:db8:0:1::1").is_ok());
        assert!(shares.of(address("2001:db8::1"), false).try_acquire_owned().is_ok());
        for number in 0..20_000u32 {
            shares.of(IpAddr::V4(number.into()), true);
        }
        assert!(shares.places.lock().unwrap().len() <= MOST_NETWORKS);
        assert!(take("2001:db8::3").is_err(), "a network that holds places is not forgotten");
        drop(held);
        assert!(take("2001:db8::3").is_ok());
    }
}
