// SPDX-License-Identifier: Apache-2.0
//! What computations name by URLs, brought over HTTP/1.1.
//!
//! Whom it may be asked of is said in [`dial`](crate::dial), and holds anew for each
//! redirect. Nothing a server says is believed: how long its data is, what its
//! entity tag is and what it hashes to are compared with what was asked for. A
//! transfer that breaks off goes on where it was, if the server's entity tag says
//! that the data is the same; what may heal is tried again after a pause, at the
//! next URL if there are several; and whatever does not come has a reason.

mod answer;
mod transfer;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::allow::AllowList;
use crate::dial::{Dialer, Place, Reach};
use crate::net::{Internet, Net};
use transfer::{State, Trouble};

/// Bounds of what is fetched.
#[derive(Debug, Clone, Copy)]
pub struct DownloadOptions {
    /// Transfers at once, of all hosts; more wait.
    pub total_max: usize,
    /// From one host.
    pub per_host_max: usize,
    /// For looking up a name, connecting, and TLS.
    pub connect_timeout: Duration,
    /// From there to the head of the answer.
    pub head_timeout: Duration,
    /// Without a byte of the answer.
    pub stall_timeout: Duration,
    /// For all of it, with all attempts.
    pub whole_timeout: Duration,
    /// Attempts of one URL after another that bring nothing.
    pub failures_max: u32,
    /// Attempts in all.
    pub attempts_max: u32,
    /// Before the second attempt; twice as long before each further one.
    pub pause: Duration,
    /// The longest pause, also if the server asks for a longer one.
    pub pause_max: Duration,
    /// Bytes of one source whose length nobody has said.
    pub bytes_max: u64,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        Self {
            total_max: 256,
            per_host_max: 64,
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(30),
            whole_timeout: Duration::from_secs(6 * 3600),
            failures_max: 5,
            attempts_max: 50,
            pause: Duration::from_millis(200),
            pause_max: Duration::from_secs(10),
            bytes_max: 64 << 30,
        }
    }
}

/// What is to be brought.
#[derive(Debug, Clone, Default)]
pub struct Download {
    /// Where it is; the later ones where earlier ones do not give it. At least one.
    pub urls: Vec<String>,
    /// How long it must be.
    pub size: Option<u64>,
    /// The strong entity tag that it must have.
    pub etag: Option<String>,
    /// What it must hash to.
    pub sha256: Option<[u8; 32]>,
    /// The entity tag of what is here already: if the server still has that, nothing
    /// is brought.
    pub known_etag: Option<String>,
}

/// How a download ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Downloaded {
    /// The sink has all of it, since it was last told to begin.
    Whole {
        /// The strong entity tag, if the server gave one.
        etag: Option<String>,
    },
    /// What is here already is what the server has.
    Known,
}

/// Why something does not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {why}")]
pub struct DownloadError {
    /// Where it was asked for last.
    pub url: String,
    /// For people.
    pub why: String,
}

/// Whether a sink has taken what it was given; the reason why not.
pub type Taking<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Who takes what comes.
pub trait Sink: Send {
    /// It begins anew: what was taken so far is void.
    fn begin(&mut self);
    /// The next bytes.
    fn take(&mut self, bytes: Bytes) -> Taking<'_>;
}

/// Brings data.
pub struct Downloads {
    options: DownloadOptions,
    dialer: Dialer,
    all: Arc<Semaphore>,
    hosts: Mutex<HashMap<String, Weak<Semaphore>>>,
    random: SystemRandom,
}

impl fmt::Debug for Downloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Downloads").field("options", &self.options).finish_non_exhaustive()
    }
}

/// May transfer; of one host and of all.
struct Turn {
    _host: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Downloads {
    /// From the node's network. Of private addresses those in `private` may be named;
    /// of public ones all.
    pub fn new(options: DownloadOptions, private: AllowList) -> Self {
        Self::with_net(options, private, Internet)
    }

    /// From another network.
    pub fn with_net(options: DownloadOptions, private: AllowList, net: impl Net + 'static) -> Self {
        Self {
            options,
            dialer: Dialer::new(Reach::Named(private, "fetch_private"), net),
            all: Arc::new(Semaphore::new(options.total_max)),
            hosts: Mutex::default(),
            random: SystemRandom::new(),
        }
    }

    /// Whether a URL can be one, as far as can be told without asking anybody.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check(&self, url: &str) -> Result<(), String> {
        self.dialer.check(url)
    }

    /// Brings what is wanted into the sink.
    ///
    /// # Errors
    /// Why it does not come, with the URL that was asked last.
    pub async fn bring(&self, wanted: &Download, sink: &mut dyn Sink) -> Result<Downloaded, DownloadError> {
        let mut at = 0;
        let limit = self.options.whole_timeout;
        let brought = timeout(limit, self.attempts(wanted, sink, &mut at)).await;
        brought
            .unwrap_or_else(|_| Err(format!("it has not come in {} s", limit.as_secs())))
            .map_err(|why| DownloadError { url: wanted.urls.get(at).cloned().unwrap_or_default(), why })
    }

    /// Tries until it comes, or there is no hope. `at` is the URL that is asked.
    async fn attempts(
        &self,
        wanted: &Download,
        sink: &mut dyn Sink,
        at: &mut usize,
    ) -> Result<Downloaded, String> {
        let mut hopeless = vec![false; wanted.urls.len()];
        let mut state = State::new(wanted);
        let mut failures = 0;
        for attempt in 1..=self.options.attempts_max {
            let before = state.received();
            let Some(url) = wanted.urls.get(*at) else { return Err("it has no URL".to_owned()) };
            let (why, pause) = match self.transfer(wanted, url, &mut state, sink).await {
                Ok(downloaded) => return Ok(downloaded),
                Err(Trouble::Heals(why, pause)) => (why, pause),
                Err(Trouble::Lasts(why)) => {
                    hopeless[*at] = true;
                    (why, Some(Duration::ZERO))
                }
                Err(Trouble::Sink(why)) => return Err(why),
            };
            let progresses = state.received() > before;
            failures = if progresses { 0 } else { failures + 1 };
            let others = (1..=hopeless.len()).map(|step| (*at + step) % hopeless.len());
            let Some(next) = others.into_iter().find(|next| !hopeless[*next]) else {
                return Err(why);
            };
            let patience = self.options.failures_max * wanted.urls.len() as u32;
            if attempt == self.options.attempts_max || failures >= patience {
                return Err(format!("{why}; given up after {attempt} attempts"));
            }
            if next != *at && (!progresses || hopeless[*at]) {
                // Another server has another copy, or so it says.
                state = State::new(wanted);
                *at = next;
            }
            sleep(self.pause(failures, pause)).await;
        }
        unreachable!("the last attempt has returned")
    }

    /// Longer after each failure, and not the same for all who wait.
    fn pause(&self, failures: u32, asked: Option<Duration>) -> Duration {
        let mut random = [0; 1];
        // Without chance it is only less fair.
        _ = self.random.fill(&mut random);
        let doubled = self.options.pause.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let pause = asked.unwrap_or_else(|| doubled.mul_f64(0.5 + f64::from(random[0]) / 512.0));
        pause.min(self.options.pause_max)
    }

    /// Waits until one more transfer from this host may begin.
    async fn turn(&self, place: &Place) -> Result<Turn, Trouble> {
        let host = self.host(&place.target.to_string());
        let closed = |_| Trouble::Lasts("nothing is brought any more".to_owned());
        let host = host.acquire_owned().await.map_err(closed)?;
        let all = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        Ok(Turn { _host: host, _all: all })
    }

    fn host(&self, name: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock();
        if let Some(known) = hosts.get(name).and_then(Weak::upgrade) {
            return known;
        }
        // Those that nobody waits for.
        hosts.retain(|_, host| host.strong_count() > 0);
        let host = Arc::new(Semaphore::new(self.options.per_host_max));
        hosts.insert(name.to_owned(), Arc::downgrade(&host));
        host
    }
}

#[cfg(test)]
mod tests;
