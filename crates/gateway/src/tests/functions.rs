// SPDX-License-Identifier: Apache-2.0
//! Functions of a node that has what a test said, and runs none of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use objects::Handle;

use crate::*;

/// Functions by name, and their routes.
#[derive(Default)]
pub(super) struct FakeFunctions {
    served: Mutex<BTreeMap<String, Vec<Arc<Served>>>>,
    pub(super) routes: Mutex<Vec<(String, Routed)>>,
    pub(super) log: Mutex<Vec<u8>>,
    /// What calls that run were told, and what they have printed.
    pub(super) printing: Mutex<Vec<(String, Printing)>>,
    pub(super) secrets: Mutex<BTreeMap<String, String>>,
    /// Whether all places of all functions are taken.
    /// Where bodies go that come later.
    pub(super) intake: Arc<Mutex<FakeIntake>>,
    /// What calls take of the machine.
    pub(super) spent: Mutex<Option<crate::Spent>>,
    /// What steps say of themselves.
    pub(super) phases: Mutex<Option<Box<crate::Phases>>>,
    pub(super) is_full: std::sync::atomic::AtomicBool,
}

/// What came of a body, and what may.
#[derive(Default)]
pub(super) struct FakeIntake {
    pub(super) room: usize,
    pub(super) waker: Option<Waker>,
    pub(super) came: Vec<u8>,
    pub(super) has_ended: bool,
    pub(super) is_broken: bool,
}

struct FakeEnd(Arc<Mutex<FakeIntake>>);

impl Intake for FakeEnd {
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let mut intake = self.0.lock().unwrap();
        if intake.room > 0 {
            return Poll::Ready(intake.room);
        }
        intake.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn bring(&mut self, piece: &[u8]) {
        let mut intake = self.0.lock().unwrap();
        intake.room -= piece.len();
        intake.came.extend_from_slice(piece);
    }

    fn end(&mut self) {
        self.0.lock().unwrap().has_ended = true;
    }
}

impl Drop for FakeEnd {
    fn drop(&mut self) {
        let mut intake = self.0.lock().unwrap();
        intake.is_broken = !intake.has_ended;
    }
}

impl FakeFunctions {
    /// A function with so many versions; the even requests get the last one.
    pub(super) fn add(&self, name: &str, versions: u64, change: impl Fn(&mut Served)) {
        let version = |version| {
            let mut served = Served {
                name: name.to_owned(),
                version,
                deployment: Handle::blob(b"a deployment that is nowhere to be found"),
                runtime: "python".to_owned(),
                procedure: Handle::blob(b"a procedure that is nowhere to be found"),
                prefix: vec![Handle::literal(b"").unwrap(), Handle::literal(b"sinew:python").unwrap()],
                is_codelet: false,
                is_program: false,
                is_workflow: false,
                maps_values: false,
                declaration: None,
                content_type: None,
                is_pure: false,
                streams_body: false,
                timeout: Duration::from_secs(60),
                memory_bytes: 1 << 20,
                calls_at_once: 1,
                concurrency: 4,
                is_idempotent: false,
                delivery: queue::Policy::default(),
                schedules: Vec::new(),
                routes: Vec::new(),
                hosts: Vec::new(),
                is_public: false,
                tool: None,
                origin: None,
                counts: Arc::default(),
                version_counts: VersionCounts::default(),
            };
            change(&mut served);
            Arc::new(served)
        };
        self.served.lock().unwrap().insert(name.to_owned(), (1..=versions).map(version).collect());
    }
}

fn nothing<T>() -> Result<T, FunctionError> {
    Err(FunctionError::NotFound("the test has none".to_owned()))
}

impl Functions for FakeFunctions {
    fn interpreter(&self, runtime: &str) -> Result<Interpreter, FunctionError> {
        if runtime != "python" {
            return nothing();
        }
        let [program, version, abi] =
            ["/usr/bin/python3", "3.14.2", "cpython-314-x86_64-linux-gnu"].map(str::to_owned);
        Ok(Interpreter { program, version, abi })
    }

    fn step(&self, workflow: &Served, settings: &StepSettings) -> Result<Arc<Served>, FunctionError> {
        let known = self.served.lock().unwrap();
        let name = format!("{}.{}", workflow.name, settings.handler);
        known.get(&name).and_then(|versions| versions.last().cloned()).map_or_else(nothing, Ok)
    }

    fn has_place(&self, _: &Served) -> bool {
        !self.is_full.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn served(&self, name: &str, qualifier: Option<&str>, lot: u32) -> Option<Arc<Served>> {
        let served = self.served.lock().unwrap();
        let versions = served.get(name)?;
        let number = match qualifier {
            Some(text) => text.parse().ok()?,
            None if lot < 5000 => versions.len(),
            None => 1,
        };
        versions.get(number - 1).cloned()
    }

    fn all(&self) -> Vec<Arc<Served>> {
        self.served.lock().unwrap().values().filter_map(|versions| versions.last().cloned()).collect()
    }

    fn versions(&self) -> Vec<Arc<Served>> {
        self.served.lock().unwrap().values().flatten().cloned().collect()
    }

    fn is_public(&self, name: &str, qualifier: Option<&str>) -> bool {
        let served = self.served.lock().unwrap();
        let Some(versions) = served.get(name) else { return false };
        let is_there = |number: &str| versions.iter().any(|version| version.version.to_string() == number);
        qualifier.is_none_or(is_there) && versions.iter().all(|version| version.is_public)
    }

    fn hosted(&self, host: &str) -> Option<String> {
        let served = self.served.lock().unwrap();
        let has = |versions: &[Arc<Served>]| {
            versions.last().is_some_and(|version| version.hosts.iter().any(|own| own == host))
        };
        match host.strip_suffix(".localhost") {
            Some(name) => served.contains_key(name).then(|| name.to_owned()),
            None => served.iter().find(|(_, versions)| has(versions)).map(|(name, _)| name.clone()),
        }
    }

    fn route(&self, method: &str, path: &str) -> Result<Routed, RouteError> {
        let routes = self.routes.lock().unwrap();
        let mut fitting = routes.iter().filter(|(wanted, _)| wanted.split_once(' ').unwrap().1 == path);
        match fitting.clone().find(|(wanted, _)| wanted.split_once(' ').unwrap().0 == method) {
            Some((_, routed)) => Ok(routed.clone()),
            None if fitting.next().is_some() => Err(RouteError::Method(vec!["GET"])),
            None => Err(RouteError::None),
        }
    }

    fn instances(&self, _: &Served) -> Instances {
        Instances::default()
    }

    fn egress(&self, served: &Served) -> Option<EgressCounts> {
        (served.version == 1).then_some(EgressCounts {
            connected: 5,
            refused: 4,
            failed: 3,
            sent_bytes: 2,
            received_bytes: 1,
        })
    }

    fn intake(&self, _: Handle) -> Option<Box<dyn Intake>> {
        Some(Box::new(FakeEnd(self.intake.clone())))
    }

    fn printing(&self, is_wanted: &mut dyn FnMut(&[u8], SoFar) -> bool) -> Vec<Printing> {
        let printing = self.printing.lock().unwrap();
        let so_far = |printed: &Printed| {
            let lines = printed.bytes.iter().filter(|byte| **byte == b'\n').count();
            SoFar { lines, bytes: printed.bytes.len() }
        };
        let wanted = printing.iter().filter(|(head, one)| is_wanted(head.as_bytes(), so_far(&one.printed)));
        wanted.map(|(_, one)| one.clone()).collect()
    }

    fn take_report(&self, _: Handle) -> Option<CallReport> {
        let log = Printed::error(self.log.lock().unwrap().clone());
        let spent = *self.spent.lock().unwrap();
        let (phases, queued) = (self.phases.lock().unwrap().clone(), Duration::from_micros(7));
        Some(CallReport { start: "warm", log, spent, phases, queued, ..CallReport::default() })
    }

    fn details(&self, _: &str) -> Result<Details, FunctionError> {
        nothing()
    }

    fn claims(&self, name: &str, _: Handle) -> Result<Vec<String>, FunctionError> {
        Ok(if name == "claims" { vec!["new.example".to_owned()] } else { Vec::new() })
    }

    fn deploy_all(
        &self,
        wanted: &[(String, Handle)],
        _: bool,
        _: &str,
    ) -> Result<Vec<Deployed>, NotDeployed> {
        let name = wanted.last().map(|(name, _)| name.clone()).unwrap_or_default();
        nothing().map_err(|error| NotDeployed { name, error })
    }

    fn roll_back(&self, _: &str, _: Option<u64>) -> Result<Deployed, FunctionError> {
        nothing()
    }

    fn set_alias(&self, _: &str, _: &str, _: &[(u64, u32)]) -> Result<(), FunctionError> {
        nothing()
    }

    fn remove_alias(&self, _: &str, _: &str) -> Result<(), FunctionError> {
        nothing()
    }

    fn secrets(&self) -> Vec<(String, Vec<String>)> {
        let secrets = self.secrets.lock().unwrap();
        secrets.keys().map(|name| (name.clone(), vec!["hello".to_owned()])).collect()
    }

    fn set_secret(&self, name: &str, value: &str) -> Result<bool, FunctionError> {
        if name == "broken" {
            return Err(FunctionError::Invalid("the test wants it so".to_owned()));
        }
        let mut secrets = self.secrets.lock().unwrap();
        Ok(secrets.insert(name.to_owned(), value.to_owned()).as_deref() != Some(value))
    }

    fn remove_secret(&self, name: &str) -> Result<(), FunctionError> {
        self.secrets.lock().unwrap().remove(name).map(drop).ok_or_else(|| nothing::<()>().unwrap_err())
    }

    fn remove(&self, _: &str) -> Result<(), FunctionError> {
        nothing()
    }
}
