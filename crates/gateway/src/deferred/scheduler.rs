// SPDX-License-Identifier: Apache-2.0
//! Who puts the calls of schedules into the queue.
//!
//! When a schedule was last due is remembered together with the call that this
//! made, so that no time is called twice. What was due while the node was down
//! is called once, whatever was missed, unless it is older than the function's
//! calls may be.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use queue::{Error, Id, Message, Queue, Schedule};
use serde_json::json;

use super::{Call, Source, now_ms};
use crate::functions::Served;
use crate::router::Shared;
use crate::unique;

/// How often schedules are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a queue that refuses is said to.
const WARN_EVERY_MS: u64 = 60_000;

/// When each schedule was last due, as far as this process knows.
#[derive(Default)]
struct Scheduler {
    last: HashMap<String, u64>,
    warned_ms: u64,
}

/// Looks at all schedules until it is dropped.
pub(super) async fn run(shared: Arc<Shared>, queue: Arc<dyn Queue>) {
    let mut scheduler = Scheduler::default();
    loop {
        let (shared_too, queue) = (shared.clone(), queue.clone());
        let look = move || {
            let is_any = scheduler.look(&shared_too, &*queue, now_ms());
            (scheduler, is_any)
        };
        let Ok((looked, is_any)) = tokio::task::spawn_blocking(look).await else { return };
        scheduler = looked;
        if is_any {
            shared.wake.wake();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Scheduler {
    /// Pushes what is due; whether anything was.
    fn look(&mut self, shared: &Shared, queue: &dyn Queue, now_ms: u64) -> bool {
        let Some(functions) = shared.backend.functions() else { return false };
        let mut known = HashMap::new();
        let mut is_any = false;
        for served in functions.all() {
            for schedule in &served.schedules {
                let mark = format!("schedule/{}/{}", served.name, schedule.text());
                let before = self.last.get(&mark).copied().or_else(|| queue.mark(&mark));
                let last = self.due(queue, &served, schedule, &mark, before.unwrap_or(now_ms), now_ms);
                is_any |= before.is_some_and(|before| before != last);
                known.insert(mark, last);
            }
        }
        self.last = known;
        is_any
    }

    /// Pushes the call of a schedule that is due; when it was last due.
    fn due(
        &mut self,
        queue: &dyn Queue,
        served: &Served,
        schedule: &Schedule,
        mark: &str,
        last: u64,
        now_ms: u64,
    ) -> u64 {
        let is_due = schedule.after(last).is_some_and(|next| next <= now_ms);
        let Some(time_ms) = schedule.before(now_ms).filter(|time_ms| is_due && *time_ms > last) else {
            return last;
        };
        if time_ms.saturating_add(served.delivery.max_age_ms) < now_ms {
            return time_ms;
        }
        match queue.push(message(served, schedule, mark, time_ms), now_ms) {
            Ok(_) => time_ms,
            // There may be room the next time that somebody looks.
            Err(error) => {
                self.warn(&served.name, &error, now_ms);
                last
            }
        }
    }

    fn warn(&mut self, function: &str, error: &Error, now_ms: u64) {
        if now_ms >= self.warned_ms.saturating_add(WARN_EVERY_MS) {
            self.warned_ms = now_ms;
            tracing::warn!(function, %error, "a schedule is due, and its call is not taken");
        }
    }
}

/// The call of a schedule.
fn message(served: &Served, schedule: &Schedule, mark: &str, time_ms: u64) -> Message {
    let id = Id(unique::uuid().as_u128());
    let call = Call {
        target: served.name.clone(),
        method: "POST".to_owned(),
        path: "/".to_owned(),
        query: String::new(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        request_id: id.to_string(),
        source: Source::Schedule,
        callback: None,
        tenant: None,
    };
    Message {
        id,
        lane: served.name.clone(),
        // Strings and numbers only: serialization has nothing to fail on.
        head: serde_json::to_vec(&call).unwrap_or_default(),
        body: json!({ "schedule": schedule.text(), "scheduled_ms": time_ms }).to_string().into_bytes(),
        due_ms: 0,
        dedup: None,
        mark: Some((mark.to_owned(), time_ms)),
    }
}
