// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

/// Counts what is asked of it, and how often its task is woken.
#[derive(Default)]
struct Counted {
    wanted: AtomicUsize,
    has_left: AtomicBool,
    woken: AtomicUsize,
}

struct Counting(Arc<Counted>);

impl Source for Counting {
    fn wants(&self, bytes: u32) {
        self.0.wanted.fetch_add(bytes as usize, Ordering::SeqCst);
    }

    fn leaves(&self) {
        self.0.has_left.store(true, Ordering::SeqCst);
    }
}

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}

fn counted() -> (Arc<Counted>, Inlet, Outlet) {
    let counted = Arc::<Counted>::default();
    let (inlet, outlet) = stream(Box::new(Counting(Arc::clone(&counted))));
    (counted, inlet, outlet)
}

fn next(counted: &Arc<Counted>, outlet: &mut Outlet) -> Poll<Option<Bytes>> {
    let waker = Waker::from(Arc::clone(counted));
    outlet.poll_next(&mut Context::from_waker(&waker))
}

#[test]
fn what_is_whole_ends_before_the_call_does() {
    let (counted, mut inlet, mut outlet) = counted();
    inlet.hears(b"ab");
    assert_eq!(next(&counted, &mut outlet), Poll::Ready(Some("ab".into())));
    assert_eq!(next(&counted, &mut outlet), Poll::Pending);
    assert!(!outlet.is_whole());
    inlet.hears(b"c");
    inlet.has_all();
    assert_eq!(counted.woken.load(Ordering::SeqCst), 1);
    assert_eq!(next(&counted, &mut outlet), Poll::Ready(Some("c".into())));
    assert_eq!(next(&counted, &mut outlet), Poll::Ready(None));
    assert!(outlet.is_whole());
    drop(outlet);
    assert!(!counted.has_left.load(Ordering::SeqCst), "who has all of it has not left");
}

#[test]
fn what_is_put_in_is_taken_in_order_and_wakes_who_waits() {
    let (counted, mut inlet, mut outlet) = counted();
    assert_eq!(next(&counted, &mut outlet), Poll::Pending);
    inlet.hears(b"ab");
    inlet.hears(b"c");
    assert_eq!(counted.woken.load(Ordering::SeqCst), 1);
    assert_eq!(next(&counted, &mut outlet), Poll::Ready(Some("abc".into())));
    assert_eq!(next(&counted, &mut outlet), Poll::Pending);
    inlet.hears(b"d");
    drop(inlet);
    assert_eq!(counted.woken.load(Ordering::SeqCst), 2);
    assert_eq!(next(&counted, &mut outlet), Poll::Ready(Some("d".into())));
    assert_eq!(next(&counted, &mut outlet), Poll::Ready(None));
    drop(outlet);
    assert!(!counted.has_left.load(Ordering::SeqCst), "it was over");
}

#[test]
fn room_is_given_for_what_was_taken_and_nothing_else() {
    let (counted, mut inlet, mut outlet) = counted();
    let step = ROOM_STEP as usize;
    inlet.hears(&vec![0; step - 1]);
    assert_eq!(counted.wanted.load(Ordering::SeqCst), 0, "nothing was taken");
    assert!(next(&counted, &mut outlet).is_ready());
    assert_eq!(counted.wanted.load(Ordering::SeqCst), 0, "that is not worth a frame");
    inlet.hears(b"x");
    assert!(next(&counted, &mut outlet).is_ready());
    assert_eq!(counted.wanted.load(Ordering::SeqCst), step);
}

#[test]
fn who_leaves_says_so_and_nothing_is_kept_for_him() {
    let (counted, mut inlet, outlet) = counted();
    inlet.hears(b"abc");
    let shared = Arc::clone(&outlet.shared);
    drop(outlet);
    assert!(counted.has_left.load(Ordering::SeqCst));
    inlet.hears(b"def");
    assert!(shared.lock().bytes.is_empty());
}
