// SPDX-License-Identifier: Apache-2.0
//! What a workflow asks of its run, as it comes over its instance's channel
//! (`docs/spec/workflows.md`, section 3): read, and held against its bounds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use objects::Handle;
use serde::Deserialize;

use super::graph::{Made, Number};
use crate::functions::StepSettings;

/// Bytes of the name of a step's function.
const FUNCTION_LEN_MAX: usize = 200;
/// Steps of one order.
const BATCH_MAX: usize = 10_000;
const RETRIES_MAX: u32 = 100;
/// Digits of what stands for code.
const CODE_LEN: usize = 64;
const DAY_MS: u64 = 86_400_000;
const CONCURRENCY_MAX: u32 = 1000;

/// How the steps of one function are run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StepOptions {
    memory_bytes: Option<u64>,
    timeout_ms: Option<u64>,
    cpu_percent: Option<u32>,
    concurrency: u32,
    /// After a failure.
    pub(super) retries: u32,
    /// Before the first of them; each later one waits for twice as long.
    retry_delay_ms: u64,
    pure: bool,
    /// What stands for all of the workflow's files that it can depend on, if it is pure.
    code: Option<String>,
    /// It maps nothing, and nothing of it is mapped.
    pub(super) isolated: bool,
}

impl Default for StepOptions {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            timeout_ms: None,
            cpu_percent: None,
            concurrency: 16,
            retries: 0,
            retry_delay_ms: 1000,
            pure: false,
            code: None,
            isolated: false,
        }
    }
}

impl StepOptions {
    fn check(&self) -> Result<(), String> {
        let bounds = [
            ("timeout_ms", self.timeout_ms.unwrap_or(1), 1, DAY_MS),
            ("cpu_percent", self.cpu_percent.unwrap_or(1).into(), 1, 6400),
            ("concurrency", self.concurrency.into(), 1, CONCURRENCY_MAX.into()),
            ("retries", self.retries.into(), 0, RETRIES_MAX.into()),
            ("retry_delay_ms", self.retry_delay_ms, 0, DAY_MS),
            ("memory_bytes", self.memory_bytes.unwrap_or(1 << 20), 1 << 20, 1 << 46),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(format!("{name} is {value}, not a number from {least} to {most}"));
            }
        }
        let is_code =
            |code: &String| code.len() == CODE_LEN && code.bytes().all(|each| each.is_ascii_hexdigit());
        if !self.code.as_ref().is_none_or(is_code) {
            return Err(format!("code is not {CODE_LEN} hexadecimal digits"));
        }
        Ok(())
    }

    /// What its pure function can depend on, if that is known and not all of the workflow's files.
    pub(super) fn code(&self) -> Option<Handle> {
        let code = self.code.as_ref().filter(|_| self.pure)?;
        Some(Handle::blob(code.as_bytes()))
    }

    /// Those of a step that is declared.
    ///
    /// # Errors
    /// A bound.
    pub(super) fn of_declared(
        retries: u32,
        retry_delay_ms: Option<u64>,
        timeout_ms: Option<u64>,
    ) -> Result<Self, String> {
        let usual = Self::default();
        let retry_delay_ms = retry_delay_ms.unwrap_or(usual.retry_delay_ms);
        let options = Self { retries, retry_delay_ms, timeout_ms, ..usual };
        options.check()?;
        Ok(options)
    }

    /// Of one attempt, if that is said.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// Those of the function that sends what this one has made.
    pub(super) fn of_sender(&self) -> Self {
        Self { memory_bytes: self.memory_bytes, timeout_ms: self.timeout_ms, ..Self::default() }
    }

    /// What the function's procedure says.
    pub(super) fn settings(&self, function: &str, may_map: bool) -> StepSettings {
        StepSettings {
            handler: function.to_owned(),
            memory_bytes: self.memory_bytes,
            timeout: self.timeout(),
            cpu_percent: self.cpu_percent,
            concurrency: self.concurrency,
            is_pure: self.pure,
            // What is remembered has no addresses.
            may_map: may_map && !self.pure && !self.isolated,
        }
    }

    /// Whether a step that is run so can be run where one is that is run in the other way: what an instance has is the same,
    /// and results go from one to the other as they are.
    pub(super) fn runs_like(&self, other: &Self) -> bool {
        let Self { memory_bytes, timeout_ms, cpu_percent, pure, isolated, .. } = *self;
        let is_same = (memory_bytes, timeout_ms, cpu_percent)
            == (other.memory_bytes, other.timeout_ms, other.cpu_percent);
        is_same && !(pure || isolated || other.pure || other.isolated)
    }

    /// How long after so many attempts the next one is made.
    pub(super) fn pause(&self, attempts: u32) -> Duration {
        let doubled = 1_u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
        Duration::from_millis(self.retry_delay_ms.saturating_mul(doubled).min(DAY_MS))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    functions: HashMap<String, StepOptions>,
    steps: Vec<StepHead>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepHead {
    function: String,
    #[serde(default)]
    needs: Vec<Number>,
    /// Those of `needs` of which it is sent the values.
    #[serde(default)]
    isolated: Vec<Number>,
    /// The workflow has let go of it: only steps that are told by now are given its result.
    #[serde(default)]
    is_left: bool,
    /// Of its arguments.
    bytes: usize,
}

/// Steps to be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) options: HashMap<Arc<str>, StepOptions>,
    pub(super) made: Vec<Made>,
}

impl Steps {
    /// Reads the body of an order: the length of a head, the head, and the
    /// arguments of all steps, one after the other.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let (len, rest) = body.split_first_chunk().ok_or("it has no head")?;
        let (head, mut arguments) =
            rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or("its head ends early")?;
        let head: Head = serde_json::from_slice(head).map_err(|error| error.to_string())?;
        if head.steps.len() > BATCH_MAX {
            return Err(format!("it makes {} steps at once, of {BATCH_MAX} at most", head.steps.len()));
        }
        let mut options: HashMap<Arc<str>, StepOptions> = HashMap::new();
        for (function, options_of_it) in head.functions {
            if !is_function(&function) {
                return Err(format!("{:?} is no function's name", function.get(..64).unwrap_or(&function)));
            }
            options_of_it.check().map_err(|why| format!("{function}: {why}"))?;
            options.insert(function.into(), options_of_it);
        }
        let mut made = Vec::with_capacity(head.steps.len());
        for StepHead { function, needs, mut isolated, is_left, bytes } in head.steps {
            let known = options.get_key_value(function.as_str());
            let (function, _) = known.ok_or("a step's function is none of those that it describes")?;
            let (own, rest) = arguments.split_at_checked(bytes).ok_or("its arguments end early")?;
            arguments = rest;
            isolated.sort_unstable();
            isolated.dedup();
            let mut known = needs.clone();
            known.sort_unstable();
            if isolated.iter().any(|need| known.binary_search(need).is_err()) {
                return Err("a step is sent values that it does not need".to_owned());
            }
            made.push(Made { function: function.clone(), needs, isolated, is_left, arguments: own.to_vec() });
        }
        if !arguments.is_empty() {
            return Err("something follows its arguments".to_owned());
        }
        Ok(Self { options, made })
    }
}

/// Whether this can be `module.name`.
fn is_function(name: &str) -> bool {
    let is_part = |part: &str| {
        let first = part.chars().next();
        first.is_some_and(|first| first.is_alphabetic() || first == '_')
            && part.chars().all(|each| each.is_alphanumeric() || each == '_')
    };
    name.len() <= FUNCTION_LEN_MAX && name.contains('.') && name.split('.').all(is_part)
}

/// Asks for the result of a step.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Value {
    pub(super) step: Number,
    /// For how long at most; `None`: until it is there.
    pub(super) wait_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn order(head: &str, arguments: &[u8]) -> Vec<u8> {
        [&u32::try_from(head.len()).unwrap().to_le_bytes()[..], head.as_bytes(), arguments].concat()
    }

    #[test]
    fn steps_are_read_with_their_arguments() {
        let head = r#"{"functions": {"main.a": {"retries": 2, "memory_bytes": 268435456}, "lib.b": {}},
            "steps": [{"function": "main.a", "is_left": true, "bytes": 3}, {"function": "lib.b", "needs": [0, 0], "isolated": [0], "bytes": 0}]}"#;
        let steps = Steps::read(&order(head, b"abc")).unwrap();
        let a = Made {
            function: "main.a".into(),
            needs: vec![],
            isolated: vec![],
            is_left: true,
            arguments: b"abc".to_vec(),
        };
        let b = Made {
            function: "lib.b".into(),
            needs: vec![0, 0],
            isolated: vec![0],
            is_left: false,
            arguments: vec![],
        };
        assert_eq!(steps.made, [a, b]);
        let options = &steps.options["main.a"];
        assert_eq!((options.retries, options.settings("main.a", false).memory_bytes), (2, Some(256 << 20)));
        assert_eq!(steps.options["lib.b"], StepOptions::default());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let step = |options: &str, function: &str, bytes: usize| {
            let head = format!(
                r#"{{"functions": {{"main.a": {options}}}, "steps": [{{"function": "{function}", "bytes": {bytes}}}]}}"#
            );
            Steps::read(&order(&head, b"abc")).unwrap_err()
        };
        let more = r#"{"functions": {"main.a": {}}, "steps": [{"function": "main.a", "isolated": [0], "bytes": 0}]}"#;
        assert!(Steps::read(&order(more, b"")).unwrap_err().contains("does not need"));
        assert!(step("{}", "main.b", 3).contains("none of those"));
        assert!(step("{}", "main.a", 4).contains("end early"));
        assert!(step("{}", "main.a", 2).contains("follows"));
        assert!(step("{}", "main.a", usize::MAX).contains("end early"));
        assert!(step(r#"{"retries": 101}"#, "main.a", 3).contains("retries is 101"));
        assert!(step(r#"{"retry": 1}"#, "main.a", 3).contains("unknown field"));
        assert!(step(r#"{"memory_bytes": 5}"#, "main.a", 3).contains("memory_bytes"));
        assert!(step(r#"{"pure": true, "code": "0a"}"#, "main.a", 3).contains("hexadecimal"));
        assert!(step(&format!(r#"{{"code": "{}"}}"#, "g".repeat(64)), "main.a", 3).contains("hexadecimal"));
        for name in ["", "main", "main.", ".a", "main..a", "main.a b", "main.<locals>.a", "../x.y"] {
            let head = format!(r#"{{"functions": {{"{name}": {{}}}}, "steps": []}}"#);
            assert!(Steps::read(&order(&head, b"")).unwrap_err().contains("no function"), "{name}");
        }
        assert!(Steps::read(b"").is_err() && Steps::read(&[9, 0, 0, 0, b'{']).is_err());
    }

    #[test]
    fn pauses_double_and_have_an_end() {
        let options = StepOptions { retry_delay_ms: 500, ..StepOptions::default() };
        let seconds = [1, 2, 3].map(|attempts| options.pause(attempts).as_millis());
        assert_eq!(seconds, [500, 1000, 2000]);
        assert_eq!(options.pause(u32::MAX), Duration::from_secs(86_400));
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_and_nothing_more(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            // Hardly any of it is an order; it must not panic.
            let _ = Steps::read(&body);
            let _ = Steps::read(&order(&String::from_utf8_lossy(&body), &body));
        }
    }
}
