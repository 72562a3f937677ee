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
        // Before it is asked whether it rang: what rings later wakes this task.
        bell.task.register(context.waker());
        // Before the other one, which may use up what the runtime lets a task do in its turn.
        if bell.rang.swap(false, Ordering::AcqRel)
            && let Poll::Ready(ended) = beside.as_mut().poll(&mut Context::from_waker(&waker))
        {
            return Poll::Ready(Ended::Beside(ended));
        }
        first.as_mut().poll(context).map(Ended::First)
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
    }

    #[tokio::test]
    async fn who_uses_up_its_turns_does_not_keep_what_is_beside_from_being_heard() {
        let greedy = poll_fn(|context| {
            while tokio::task::coop::has_budget_remaining() {
                _ = pin!(tokio::task::consume_budget()).poll(context);
            }
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let beside = async {
            tokio::select! {
                () = sleep(Duration::from_millis(5)) => {}
                () = std::future::pending() => {}
            }
        };
        let soon = Duration::from_secs(20);
        let ended = tokio::time::timeout(soon, either(pin!(greedy), pin!(beside))).await;
        assert_eq!(ended.ok(), Some(Ended::Beside(())));
    }
}
