// SPDX-License-Identifier: Apache-2.0
//! The network that the node is in: looking names up, and connecting.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::turns::Turns;

/// What comes later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A network. What it says of names is not believed.
pub trait Net: Send + Sync {
    /// The addresses of a name. Blocks, for as long as the machine's resolver does.
    ///
    /// # Errors
    /// The name is not found, or nobody is there to be asked.
    fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
    /// A connection to this very address.
    fn connect(&self, address: SocketAddr) -> Answer<'_, TcpStream>;
}

/// The node's own, with the machine's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct Internet;

impl Net for Internet {
    fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        // With the point no search list is appended to it.
        Ok((format!("{name}."), port).to_socket_addrs()?.collect())
    }

    fn connect(&self, address: SocketAddr) -> Answer<'_, TcpStream> {
        Box::pin(TcpStream::connect(address))
    }
}

/// A network in which few names are looked up at once. A thread that waits for a
/// resolver cannot be called back, so that a look-up has its place until it has
/// ended, also if nobody waits for it any more. Whose servers answer slowly has a part
/// of the places only ([`zone`]).
pub(crate) struct Lookups {
    net: Arc<dyn Net>,
    places: Arc<Semaphore>,
    zones: Turns,
    /// For names that the node's owner has given.
    kept: Arc<Semaphore>,
}

/// Whose names are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The node's owner's: they wait for nobody else's.
    Owner,
    Anybody,
}

/// May look a name up.
pub(crate) struct Lookup {
    _of_zone: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl Lookups {
    /// A quarter of the places is the most that one zone has; and the node's owner has
    /// as many for himself.
    pub(crate) fn new(net: impl Net + 'static, at_once_max: usize) -> Self {
        let part = (at_once_max / 4).max(1);
        Self {
            net: Arc::new(net),
            places: Arc::new(Semaphore::new(at_once_max)),
            zones: Turns::new(part),
            kept: Arc::new(Semaphore::new(part)),
        }
    }

    /// Waits until this name may be looked up.
    pub(crate) async fn place(&self, name: &str, whose: Whose) -> io::Result<Lookup> {
        let (of_zone, places) = match whose {
            Whose::Owner => (None, &self.kept),
            Whose::Anybody => {
                let of_zone = self.zones.of(&zone(name)).acquire_owned().await;
                (Some(of_zone.map_err(io::Error::other)?), &self.places)
            }
        };
        let of_all = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
        Ok(Lookup { _of_zone: of_zone, _of_all: of_all })
    }

    /// The addresses of a name.
    pub(crate) async fn resolve(&self, place: Lookup, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let (net, name) = (Arc::clone(&self.net), name.to_owned());
        let looked_up = tokio::task::spawn_blocking(move || {
            let _place = place;
            net.resolve(&name, port)
        });
        looked_up.await.map_err(io::Error::other)?
    }

    /// A connection to this very address.
    pub(crate) fn connect(&self, address: SocketAddr) -> Answer<'_, TcpStream> {
        self.net.connect(address)
    }
}

/// The last two parts of a name, in small letters. Whoever has one such zone, or has
/// hosts in one that others have hosts in too, does not keep all places busy.
fn zone(name: &str) -> String {
    let name = name.trim_end_matches('.');
    let begin = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
    name.get(begin..).unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Looks names up for as long as nobody says that it is enough.
    struct Slow(Mutex<Receiver<()>>);

    impl Net for Slow {
        fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            self.0.lock().unwrap().recv().map_err(io::Error::other)?;
            Ok(vec![SocketAddr::from(([1, 2, 3, 4], port))])
        }

        fn connect(&self, _: SocketAddr) -> Answer<'_, TcpStream> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
    }

    #[tokio::test]
    async fn who_does_not_wait_for_a_name_any_more_leaves_its_place_taken() {
        let (enough, slow) = channel();
        let lookups = Lookups::new(Slow(Mutex::new(slow)), 2);
        let look_up = async |name: &str, port| {
            let place = lookups.place(name, Whose::Anybody).await?;
            lookups.resolve(place, name, port).await
        };
        for name in ["a", "b", "c", "d", "e"] {
            assert!(timeout(Duration::from_millis(50), look_up(name, 1)).await.is_err());
        }
        assert_eq!(lookups.places.available_permits(), 0, "two threads still wait");
        for _ in 0..3 {
            enough.send(()).unwrap();
        }
        let found = timeout(Duration::from_secs(30), look_up("a", 7)).await.unwrap();
        assert_eq!(found.unwrap(), [SocketAddr::from(([1, 2, 3, 4], 7))]);
    }

    #[tokio::test]
    async fn slow_names_of_one_zone_leave_places_to_others_and_all_leave_some_to_the_owner() {
        let (_never, slow) = channel();
        let lookups = Lookups::new(Slow(Mutex::new(slow)), 8);
        let soon = Duration::from_millis(200);
        let place = async |name: &str, whose| timeout(soon, lookups.place(name, whose)).await;
        let mut held = Vec::new();
        for number in 0..2 {
            held.push(place(&format!("{number}.Slow.example"), Whose::Anybody).await.unwrap());
        }
        assert!(place("2.b.slow.example.", Whose::Anybody).await.is_err(), "a zone has a quarter");
        for number in 0..6 {
            held.push(place(&format!("a.{number}.example"), Whose::Anybody).await.unwrap());
        }
        assert!(place("other", Whose::Anybody).await.is_err(), "all have eight");
        held.push(place("2.slow.example", Whose::Owner).await.unwrap());
        held.clear();
        assert!(place("2.slow.example", Whose::Anybody).await.is_ok());
    }

    #[test]
    fn a_zone_is_the_end_of_a_name() {
        for (name, of) in
            [("a", "a"), ("a.b", "a.b"), ("x.a.b", "a.b"), ("y.X.A.B.", "a.b"), ("", ""), ("..", "")]
        {
            assert_eq!(zone(name), of, "{name}");
        }
    }
}
