// SPDX-License-Identifier: Apache-2.0
//! What an attempt's end means for the call.

use axum::http::StatusCode;
use queue::{Claimed, End, Policy};

use super::{Outcome, Source};
use crate::invocation::Answer;
use crate::problem::Problem;

/// Bytes of an answer's body that a reason quotes.
const QUOTED: usize = 512;

/// An attempt that has ended, and is judged.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It did what it should.
    Done,
    /// Another attempt may do better.
    Again {
        /// Why, for people.
        reason: String,
        /// Whether it was an attempt: what found no room was none.
        counts: bool,
    },
    /// No other attempt would do better.
    Never(String),
}

/// Judges an end. Of an HTTP call only a status below 400 is a success; what a
/// status of 408, 425, 429 or 500 and more says may pass. For a client of
/// Lambda whatever a function returns is a success.
pub(super) fn judge(end: &Result<Answer, Problem>, source: Source) -> Verdict {
    match end {
        Ok(answer) if source == Source::Lambda || answer.status.as_u16() < 400 => Verdict::Done,
        Ok(answer) => {
            let body = &answer.body[..answer.body.len().min(QUOTED)];
            let said = String::from_utf8_lossy(body);
            let reason = format!("it answered with {}: {said}", answer.status.as_u16());
            match answer.status.as_u16() {
                408 | 425 | 429 | 500.. => Verdict::Again { reason, counts: true },
                _ => Verdict::Never(reason),
            }
        }
        Err(problem) => {
            let no_room = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
            let counts = !no_room.contains(&problem.status());
            Verdict::Again { reason: problem.detail().to_owned(), counts }
        }
    }
}

/// Judges the end of a run of a workflow. Its steps were tried again as they say, so that
/// a run that failed has failed; one that was interrupted goes on.
pub(super) fn judge_run(end: &Result<Answer, Problem>) -> Verdict {
    let was_stopped = |problem: &Problem| {
        [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&problem.status())
    };
    match end {
        Ok(answer) if answer.status.as_u16() < 400 => Verdict::Done,
        Err(problem) if was_stopped(problem) => {
            Verdict::Again { reason: problem.detail().to_owned(), counts: false }
        }
        Err(problem) => Verdict::Never(problem.detail().to_owned()),
        Ok(answer) => {
            let body = &answer.body[..answer.body.len().min(QUOTED)];
            let said = String::from_utf8_lossy(body);
            Verdict::Never(format!("it answered with {}: {said}", answer.status.as_u16()))
        }
    }
}

/// What becomes of the call. `random` spreads attempts over time.
pub(super) fn end(
    verdict: Verdict,
    claimed: &Claimed,
    policy: &Policy,
    (now_ms, random): (u64, u64),
    outcome: impl FnOnce() -> Vec<u8>,
) -> End {
    match verdict {
        Verdict::Done => End::Succeeded(outcome()),
        Verdict::Never(reason) => End::Dead { reason },
        Verdict::Again { reason, counts } => {
            let due = match counts {
                true => policy.next(claimed.created_ms, claimed.attempt, now_ms, random),
                false => policy.later(claimed.created_ms, claimed.attempt, now_ms, random),
            };
            match due {
                Ok(due_ms) => End::Retry { due_ms, reason, counts },
                Err(why) => End::Dead { reason: format!("{why}; the last one: {reason}") },
            }
        }
    }
}

/// Why a call is not attempted any more although nobody saw its last attempt end.
pub(super) fn overdue(claimed: &Claimed, policy: &Policy, now_ms: u64) -> Option<String> {
    if claimed.attempt > policy.max_attempts {
        let most = policy.max_attempts;
        return Some(format!("{most} of {most} attempts were begun, and the node ended during the last"));
    }
    let is_old = now_ms > claimed.created_ms.saturating_add(policy.max_age_ms);
    is_old.then(|| format!("it is older than {} s, and was not attempted in time", policy.max_age_ms / 1000))
}

/// What is kept of an answer.
pub(super) fn outcome(end: &Result<Answer, Problem>, version: u64) -> Vec<u8> {
    end.as_ref().map(|answer| Outcome::encoded(answer, version)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use axum::http::HeaderMap;
    use queue::Id;

    use super::*;

    fn answer(status: u16) -> Result<Answer, Problem> {
        let status = StatusCode::from_u16(status).unwrap();
        Ok(Answer { status, headers: HeaderMap::new(), body: Bytes::from_static(b"because"), memory: None })
    }

    #[test]
    fn statuses_are_judged() {
        for (status, expected) in [
            (200, "done"),
            (302, "done"),
            (400, "never"),
            (404, "never"),
            (408, "again"),
            (429, "again"),
            (500, "again"),
            (503, "again"),
        ] {
            let word = match judge(&answer(status), Source::Http) {
                Verdict::Done => "done",
                Verdict::Never(reason) => {
                    assert!(reason.contains("because"));
                    "never"
                }
                Verdict::Again { counts, .. } => {
                    assert!(counts, "the function ran");
                    "again"
                }
            };
            assert_eq!(word, expected, "{status}");
            assert_eq!(judge(&answer(status), Source::Lambda), Verdict::Done);
        }
        let busy = Err(Problem::busy("node", "full"));
        assert!(matches!(judge(&busy, Source::Http), Verdict::Again { counts: false, .. }));
        let failed = Err(Problem::internal("function", "raised"));
        assert!(matches!(judge(&failed, Source::Lambda), Verdict::Again { counts: true, .. }));
    }

    #[test]
    fn attempts_and_age_end_a_call() {
        let claimed = |attempt| Claimed {
            id: Id(1),
            lane: "a".to_owned(),
            attempt,
            created_ms: 0,
            head: Vec::new(),
            body: Vec::new(),
        };
        let policy = Policy { max_attempts: 2, ..Policy::default() };
        let again = || Verdict::Again { reason: "raised".to_owned(), counts: true };
        let end = |attempt, verdict| super::end(verdict, &claimed(attempt), &policy, (1000, 0), Vec::new);
        assert!(matches!(end(1, again()), End::Retry { due_ms: 1500, counts: true, .. }));
        assert!(
            matches!(end(2, again()), End::Dead { reason } if reason.contains("2 of 2") && reason.contains("raised"))
        );
        let busy = Verdict::Again { reason: "full".to_owned(), counts: false };
        assert!(matches!(end(2, busy), End::Retry { counts: false, .. }));
        assert!(overdue(&claimed(2), &policy, 1000).is_none());
        assert!(overdue(&claimed(3), &policy, 1000).is_some_and(|why| why.contains("node ended")));
        assert!(overdue(&claimed(1), &policy, u64::MAX).is_some_and(|why| why.contains("older")));
    }
}
