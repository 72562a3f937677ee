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

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::allow::AllowList;
use crate::dial::{Dialer, Place, Reach};
use crate::link::LinkOptions;
use crate::net::{Internet, Net};
use crate::s3::Buckets;
use crate::turns::Turns;
use transfer::{State, Trouble};

pub(crate) use answer::retry_after;
pub(crate) use transfer::is_passing;

/// Bounds of what is fetched.
#[derive(Debug, Clone, Copy)]
pub struct DownloadOptions {
    /// Transfers at once, of all hosts; more wait.
    pub total_max: usize,
    /// From one host.
    pub per_host_max: usize,
    /// For looking up a name, connecting, and TLS, without waiting for one's turn to
    /// look up.
    pub connect_timeout: Duration,
    /// From there to the head of the answer.
    pub head_timeout: Duration,
    /// Without a byte of the answer.
    pub stall_timeout: Duration,
    /// For how long a connection is kept that nobody uses. As many are kept as there may be transfers.
    pub idle_timeout: Duration,
    /// For all of it, with all attempts, once it had its first turn.
    pub whole_timeout: Duration,
    /// Bytes a second that come at least, over each [`Self::rate_window`] in which they
    /// are waited for. Who sends less is asked again as if nothing had come.
    pub rate_min: u64,
    /// For how long together a server is waited for before it is looked how much came.
    pub rate_window: Duration,
    /// Attempts of one URL after another that bring nothing.
    pub failures_max: u32,
    /// Attempts in all.
    pub attempts_max: u32,
    /// Before the second attempt; twice as long before each further one.
    pub pause: Duration,
    /// The longest pause, also if the server asks for a longer one.
    pub pause_max: Duration,
    /// Bytes of one source.
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
            idle_timeout: Duration::from_secs(15),
            whole_timeout: Duration::from_secs(6 * 3600),
            rate_min: 8 << 10,
            rate_window: Duration::from_secs(60),
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
    /// What was taken so far is void, and may not be followed by more for long: nothing
    /// is held any more.
    fn forget(&mut self);
    /// Whether there is room for so many bytes in all. What it has said yes to is kept
    /// until it forgets, or begins anew after it has taken something.
    fn has_room(&mut self, bytes: u64) -> bool;
    /// Waits for such room. It holds nothing else.
    fn room(&mut self, bytes: u64) -> Taking<'_>;
    /// The next bytes.
    fn take(&mut self, bytes: Bytes) -> Taking<'_>;
    /// All has come: it is kept.
    fn end(&mut self) -> Taking<'_>;
}

/// Brings data.
pub struct Downloads {
    options: DownloadOptions,
    buckets: Buckets,
    dialer: Dialer,
    all: Arc<Semaphore>,
    hosts: Turns,
    random: SystemRandom,
}

impl fmt::Debug for Downloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Downloads").field("options", &self.options).finish_non_exhaustive()
    }
}

/// May transfer; of one host and of all. Whoever holds bytes has one, also between
/// attempts, so that no more than there are turns hold bytes.
struct Turn {
    host: String,
    _of_host: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

impl Downloads {
    /// From the node's network. Of private addresses those in `private` may be named;
    /// of public ones all.
    pub fn new(options: DownloadOptions, private: AllowList) -> Self {
        Self::with_net(options, private, Internet)
    }

    /// From another network.
    pub fn with_net(options: DownloadOptions, private: AllowList, net: impl Net + 'static) -> Self {
        let DownloadOptions { total_max, per_host_max, idle_timeout: idle_max, .. } = options;
        let kept = LinkOptions { total_max, per_host_max, idle_max };
        Self {
            options,
            buckets: Buckets::default(),
            dialer: Dialer::new(Reach::Named(private, "fetch_private"), net).keeping(kept),
            all: Arc::new(Semaphore::new(options.total_max)),
            hosts: Turns::new(options.per_host_max),
            random: SystemRandom::new(),
        }
    }

    /// Objects in these buckets can be named too.
    #[must_use]
    pub fn with_buckets(self, buckets: Buckets) -> Self {
        Self { buckets, ..self }
    }

    /// Where a URL leads to.
    fn place(&self, url: &str) -> Result<Place, String> {
        if Buckets::is_one(url) { self.buckets.place(url) } else { Place::read(url) }
    }

    /// Brings what is wanted into the sink.
    ///
    /// # Errors
    /// Why it does not come, with the URL that was asked last.
    pub async fn bring(&self, wanted: &Download, sink: &mut dyn Sink) -> Result<Downloaded, DownloadError> {
        let mut at = 0;
        let mut state = State::new(wanted);
        // What is wrong with the URL is told by the first attempt.
        if let Some(Ok(place)) = wanted.urls.first().map(|url| self.place(url)) {
            state.turn = self.turn(place.target.to_string()).await;
        }
        let limit = self.options.whole_timeout;
        let brought = timeout(limit, self.attempts(wanted, state, sink, &mut at)).await;
        brought
            .unwrap_or_else(|_| Err(format!("it has not come in {} s", limit.as_secs())))
            .map_err(|why| DownloadError { url: wanted.urls.get(at).cloned().unwrap_or_default(), why })
    }

    /// Tries until it comes, or there is no hope. `at` is the URL that is asked.
    async fn attempts(
        &self,
        wanted: &Download,
        mut state: State,
        sink: &mut dyn Sink,
        at: &mut usize,
    ) -> Result<Downloaded, String> {
        let mut hopeless = vec![false; wanted.urls.len()];
        let mut failures = 0;
        // Of those, at this URL and together, those that brought something, too slowly.
        let mut slow = 0;
        // Bytes that came of this URL, in the attempt that went on longest.
        let mut farthest = 0;
        for attempt in 1..=self.options.attempts_max {
            let Some(url) = wanted.urls.get(*at) else { return Err("it has no URL".to_owned()) };
            let (why, pause) = match self.transfer(wanted, url, &mut state, sink).await {
                // Until it is kept it has its turn.
                Ok(Downloaded::Known) => return Ok(Downloaded::Known),
                Ok(whole) => return sink.end().await.map(|()| whole),
                Err(Trouble::Heals(why, pause)) => (why, pause),
                Err(Trouble::Lasts(why)) => {
                    hopeless[*at] = true;
                    (why, Some(Duration::ZERO))
                }
                Err(Trouble::Room(bytes)) if attempt < self.options.attempts_max => {
                    state.leave(wanted);
                    sink.forget();
                    sink.room(bytes).await?;
                    continue;
                }
                Err(Trouble::Room(bytes)) => return Err(format!("there is no room for its {bytes} bytes")),
                Err(Trouble::Sink(why)) => return Err(why),
            };
            let came = state.received() > farthest;
            let progresses = state.was_fast(&self.options) && came;
            farthest = farthest.max(state.received());
            (failures, slow) = match (came, progresses) {
                (_, true) => (0, 0),
                (came, false) => (failures + 1, if came { slow + 1 } else { 0 }),
            };
            let others = (1..=hopeless.len()).map(|step| (*at + step) % hopeless.len());
            let Some(next) = others.into_iter().find(|next| !hopeless[*next]) else {
                return Err(why);
            };
            let patience = self.options.failures_max * wanted.urls.len() as u32;
            if attempt == self.options.attempts_max || failures >= patience {
                return Err(format!("{why}; given up after {attempt} attempts"));
            }
            let is_left = next != *at && (!came || slow >= self.options.failures_max || hopeless[*at]);
            if is_left || !state.can_go_on() {
                // Another server has another copy, or so it says.
                state.leave(wanted);
                sink.forget();
            }
            if is_left {
                (*at, farthest, slow) = (next, 0, 0);
                state.asks_another();
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

    /// Waits until one more transfer from this host may begin. Only for who has no turn:
    /// those who wait for each other would wait for ever. None: there are none any more.
    async fn turn(&self, host: String) -> Option<Turn> {
        let of_host = self.hosts.of(&host).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Turn { host, _of_host: of_host, of_all })
    }

    /// Makes the turn one of this host. Where that has to be waited for, what has come
    /// is given up.
    async fn turn_to(&self, host: String, wanted: &Download, state: &mut State, sink: &mut dyn Sink) {
        if state.turn.as_ref().is_some_and(|turn| turn.host == host) {
            return;
        }
        if let Some(turn) = state.turn.take() {
            if let Ok(of_host) = self.hosts.of(&host).try_acquire_owned() {
                state.turn = Some(Turn { host, _of_host: of_host, of_all: turn.of_all });
                return;
            }
            drop(turn);
            state.void(wanted);
            sink.forget();
        }
        state.turn = self.turn(host).await;
    }
}

#[cfg(test)]
mod tests;
