// SPDX-License-Identifier: Apache-2.0
//! What an instance may want of a body.
#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;

use super::*;

/// Writes down what is wanted.
#[derive(Default)]
struct Wants(Mutex<Vec<u32>>);

impl Feed for Wants {
    fn begins(&self, _: Box<dyn Intake>, _: usize) {}

    fn wants(&self, bytes: u32) {
        self.0.lock().push(bytes);
    }
}

#[test]
fn no_more_is_brought_than_there_is_room_for_and_no_more_wanted_than_was_brought() {
    let wants = Arc::<Wants>::default();
    let mut fed = Fed::new(wants.clone(), 100);
    assert!(fed.takes(60) && !fed.takes(41) && fed.takes(40) && !fed.takes(1));
    fed.gives(30).unwrap();
    assert!(fed.takes(30) && !fed.takes(1));
    fed.gives(100).unwrap();
    for lie in [1, u32::MAX] {
        assert!(matches!(fed.gives(lie), Err(Broken::Lie(_))), "{lie}");
    }
    assert!(fed.takes(100));
    fed.is_over = true;
    fed.gives(100).unwrap();
    assert_eq!(*wants.0.lock(), [30, 100], "of a body that is over nothing is wanted");
}

#[test]
fn the_bodies_of_an_instance_have_a_bound_together() {
    assert_eq!((window(0), window(1), window(16)), (STREAM_WINDOW, STREAM_WINDOW, STREAM_WINDOW));
    for calls in [17, 64, 1000] {
        assert!(window(calls) * usize::from(calls) <= UNREAD_MAX && window(calls) >= 4096, "{calls}");
    }
}
