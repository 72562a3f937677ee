// SPDX-License-Identifier: Apache-2.0
//! A future that is polled often, with one beside it that seldom has anything to say.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Which of two has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended<T, U> {
    First(T),
    Beside(U),
}

/// Waits for either. `beside` is polled only where it has been woken itself: a connection is polled several
/// times a request, and its timers and signals once in a while.
pub(super) async fn either<T, U>(
    mut first: Pin<&mut impl Future<Output = T>>,
    mut beside: Pin<&mut impl Future<Output = U>>,
) -> Ended<T, U> {
    let bell = Arc::new(Bell { rang: AtomicBool::new(true), task: AtomicWaker::new() });
    let waker = Waker::from(Arc::clone(&bell));
    poll_fn(|context| {
        if let Poll::Ready(ended) = first.as_mut().poll(context) {
            return Poll::Ready(Ended::First(ended));
        }
        // Before it is asked whether it rang: what rings later wakes this task.
        bell.task.register(context.waker());
        if !bell.rang.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        beside.as_mut().poll(&mut Context::from_waker(&waker)).map(Ended::Beside)
    })
    .await
}

/// Says that what is beside is to be polled, and has it done.
struct Bell {
    rang: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn what_is_beside_is_polled_only_when_it_is_woken() {
        let (polls, rings) = (Cell::new(0), Notify::new());
        let beside = async {
            let mut rung = pin!(rings.notified());
            poll_fn(|context| {
                polls.set(polls.get() + 1);
                rung.as_mut().poll(context)
            })
            .await;
        };
        let first = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(polls.get(), 1);
            rings.notify_one();
            std::future::pending::<()>().await;
        };
        assert_eq!(either(pin!(first), pin!(beside)).await, Ended::Beside(()));
        assert_eq!(polls.get(), 2);
    }

    #[tokio::test]
    async fn either_ends_it() {
        let long = || sleep(Duration::from_secs(60));
        let brief = || sleep(Duration::from_millis(5));
        assert_eq!(either(pin!(brief()), pin!(long())).await, Ended::First(()));
        assert_eq!(either(pin!(long()), pin!(brief())).await, Ended::Beside(()));
        let ready = std::future::ready(1);
        assert_eq!(either(pin!(ready), pin!(std::future::ready(2))).await, Ended::First(1));
    }
}
