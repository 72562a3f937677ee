// SPDX-License-Identifier: Apache-2.0
//! Running a program: a fresh instance, `_start`, and the result.

use std::sync::Arc;

use objects::FailureCode;
use wasmtime::{Extern, Store};

use super::errno::Stop;
use super::means::Means;
use super::process::Process;
use crate::wasm::call::CallState;
use crate::wasm::invoker::fault_of;
use crate::wasm::library::Loaded;
use crate::wasm::live;
use crate::{Fault, Outcome};

/// Runs the program of the call that `state` has taken up. Nothing of it is left.
pub(crate) fn run(loaded: &Loaded, mut state: CallState, fuel: u64) -> Outcome {
    let application = state.table.application();
    let objects = Arc::clone(&state.store);
    let mut means = Means { store: &objects, budget: &mut state.budget, now: 0 };
    let process = match application.map(|application| Process::new(application.as_tree(), &mut means)) {
        Some(Ok(process)) => process,
        Some(Err(Stop::Ended(fault))) => return Outcome::refused(fault),
        Some(Err(Stop::Refused(errno))) => {
            let why = format!("the program's directories cannot be opened: error {errno:?}");
            return Outcome::refused(Fault::new(FailureCode::BadThunk, why));
        }
        None => unreachable!("a call that was begun has an application"),
    };
    state.program = Some(Box::new(process));
    let mut store = Store::new(loaded.instance.module().engine(), state);
    let returned = start(loaded, &mut store, fuel);
    let used = if fuel > 0 { fuel - store.get_fuel().unwrap_or(0) } else { 0 };
    let state = store.data_mut();
    let Some(mut process) = state.program.take() else { unreachable!("it was put there above") };
    let result = match returned {
        Err(error) if process.exit.is_none() || state.fault.is_some() => {
            Err(with_last_words(fault_of(state, &error), &process))
        }
        _ => {
            let mut means = Means { store: &objects, budget: &mut state.budget, now: 0 };
            Ok(process.finish(&mut means))
        }
    };
    Outcome { result, fuel: used, log: Vec::new(), spent: None }
}

fn start(loaded: &Loaded, store: &mut Store<CallState>, fuel: u64) -> wasmtime::Result<()> {
    live::prepare(loaded, store, fuel)?;
    let instance = loaded.instance.instantiate(&mut *store)?;
    let Some(Extern::Func(start)) = instance.get_module_export(&mut *store, &loaded.entry) else {
        unreachable!("the scan found a function of that name");
    };
    start.typed::<(), ()>(&*store)?.call(store, ())
}

/// A failure that repeats what the program said at last: a panic's message, for one.
fn with_last_words(fault: Fault, process: &Process) -> Fault {
    match process.last_words() {
        Some(words) if fault.code != FailureCode::Cancelled && fault.code != FailureCode::Deadline => {
            Fault::new(fault.code, format!("{}\nIts stderr ends with:\n{words}", fault.detail))
        }
        _ => fault,
    }
}
