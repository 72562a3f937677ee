// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests on their way from a client to an instance, before they are
//! whole.
//!
//! The gateway has the body, and names the application that it is for; whoever
//! gives that to an instance finds it here. What is on its way is never more than
//! the instance has room for, and lies nowhere in between.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use foldhash::HashMap;
use objects::Handle;
use parking_lot::Mutex;

/// The bodies that no instance has asked for yet, by application.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<HashMap<Handle, Arc<Feed>>>);

/// What both ends of one body know.
#[derive(Default)]
pub(crate) struct Feed(Mutex<Room>);

#[derive(Default)]
struct Room {
    intake: Option<Arc<dyn sandbox::Intake>>,
    bytes: usize,
    waker: Option<Waker>,
}

/// The end that has the body. Dropped before the body's end, it says so.
pub(crate) struct Intake {
    feeds: Arc<Feeds>,
    application: Handle,
    feed: Arc<Feed>,
    is_over: bool,
}

impl Feeds {
    /// A body that will come, for this application.
    pub(crate) fn open(self: &Arc<Self>, application: Handle) -> Intake {
        let feed = Arc::<Feed>::default();
        self.0.lock().insert(application, Arc::clone(&feed));
        Intake { feeds: Arc::clone(self), application, feed, is_over: false }
    }

    /// The body of an application; `None`: it has all of it.
    pub(crate) fn take(&self, application: Handle) -> Option<Arc<Feed>> {
        self.0.lock().remove(&application)
    }
}

impl sandbox::Feed for Feed {
    fn begins(&self, intake: Box<dyn sandbox::Intake>, room: usize) {
        let mut own = self.0.lock();
        own.intake = Some(intake.into());
        own.bytes = room;
        own.waker.take().into_iter().for_each(Waker::wake);
    }

    fn wants(&self, bytes: u32) {
        let mut own = self.0.lock();
        own.bytes += bytes as usize;
        own.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Intake {
    /// What leads to the instance. Used without the lock: whoever holds the instance
    /// takes that.
    fn intake(&self) -> Option<Arc<dyn sandbox::Intake>> {
        self.feed.0.lock().intake.clone()
    }
}

impl gateway::Intake for Intake {
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let mut own = self.feed.0.lock();
        if own.bytes > 0 {
            return Poll::Ready(own.bytes);
        }
        own.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn bring(&mut self, piece: &[u8]) {
        let intake = {
            let mut own = self.feed.0.lock();
            own.bytes = own.bytes.saturating_sub(piece.len());
            own.intake.clone()
        };
        intake.into_iter().for_each(|intake| intake.brings(piece));
    }

    fn end(&mut self) {
        self.is_over = true;
        self.intake().into_iter().for_each(|intake| intake.ends());
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.feeds.take(self.application);
        if !self.is_over {
            self.intake().into_iter().for_each(|intake| intake.breaks());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use gateway::Intake as _;
    use sandbox::Feed as _;

    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    struct Telling(Arc<Told>);

    impl sandbox::Intake for Telling {
        fn brings(&self, bytes: &[u8]) {
            self.0.0.lock().push(String::from_utf8_lossy(bytes).into_owned());
        }

        fn ends(&self) {
            self.0.0.lock().push("end".to_owned());
        }

        fn breaks(&self) {
            self.0.0.lock().push("broken".to_owned());
        }
    }

    fn room(intake: &mut Intake) -> Option<usize> {
        match intake.poll_room(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(bytes) => Some(bytes),
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_is_brought_gets_there_while_there_is_room() {
        let (feeds, told) = (Arc::<Feeds>::default(), Arc::<Told>::default());
        let application = Handle::u64(1);
        let mut intake = feeds.open(application);
        assert_eq!(room(&mut intake), None, "the call has not begun");
        let feed = feeds.take(application).unwrap();
        assert!(feeds.take(application).is_none(), "it is for one instance");
        feed.begins(Box::new(Telling(Arc::clone(&told))), 3);
        assert_eq!(room(&mut intake), Some(3));
        intake.bring(b"abc");
        assert_eq!(room(&mut intake), None);
        feed.wants(2);
        assert_eq!(room(&mut intake), Some(2));
        intake.bring(b"d");
        intake.end();
        drop(intake);
        assert_eq!(*told.0.lock(), ["abc", "d", "end"]);
    }

    #[test]
    fn a_body_that_is_left_is_broken_off_and_one_that_nobody_asked_for_is_forgotten() {
        let (feeds, told) = (Arc::<Feeds>::default(), Arc::<Told>::default());
        let intake = feeds.open(Handle::u64(1));
        feeds.take(Handle::u64(1)).unwrap().begins(Box::new(Telling(Arc::clone(&told))), 3);
        drop(intake);
        assert_eq!(*told.0.lock(), ["broken"]);
        drop(feeds.open(Handle::u64(2)));
        assert!(feeds.0.lock().is_empty());
    }
}
