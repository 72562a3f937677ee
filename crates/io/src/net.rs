// SPDX-License-Identifier: Apache-2.0
//! The network that the node is in: looking names up, and connecting.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

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
/// ended, also if nobody waits for it any more.
pub(crate) struct Lookups {
    net: Arc<dyn Net>,
    places: Arc<Semaphore>,
}

impl Lookups {
    pub(crate) fn new(net: impl Net + 'static, at_once_max: usize) -> Self {
        Self { net: Arc::new(net), places: Arc::new(Semaphore::new(at_once_max)) }
    }

    /// The addresses of a name.
    pub(crate) async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
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
        for _ in 0..5 {
            assert!(timeout(Duration::from_millis(50), lookups.resolve("a", 1)).await.is_err());
        }
        assert_eq!(lookups.places.available_permits(), 0, "two threads still wait");
        for _ in 0..3 {
            enough.send(()).unwrap();
        }
        let found = timeout(Duration::from_secs(30), lookups.resolve("a", 7)).await.unwrap();
        assert_eq!(found.unwrap(), [SocketAddr::from(([1, 2, 3, 4], 7))]);
    }
}
