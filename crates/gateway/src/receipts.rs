// SPDX-License-Identifier: Apache-2.0
//! Receipts of evaluations: what was noted of one becomes a statement that the node
//! signs, with its cost and price.
//!
//! The cost follows from the applications alone (`objects::Cost`), so that whoever
//! evaluates the same finds the same. It is reckoned here after the evaluation, where
//! reading a tree again holds nobody up.

use std::collections::HashMap;

use objects::{
    Application, BundleRecord, Cost, Handle, Limits, Price, Receipt, ReceiptStep, Statement, Sums, steps_hash,
};

use crate::backend::{Backend, Noted, NotedStep};
use crate::invocation::{millis, since_1970};
use crate::usage::{Rates, Term};

/// Objects that are looked at to tell the inputs of all applications of a receipt.
const OBJECTS_MAX: usize = 1 << 21;
/// Entries of applications whose inputs are known.
const ENTRIES_MAX: usize = 1 << 17;

/// Why there is no receipt; or our own fault.
#[derive(Debug)]
pub(crate) enum Unissued {
    /// What was evaluated can have none.
    Refused(String),
    /// The store fails.
    Failed(store::Error),
}

impl From<store::Error> for Unissued {
    fn from(error: store::Error) -> Self {
        Self::Failed(error)
    }
}

/// Signs what an evaluation led to, and keeps the receipt: its handle, a blob's. Blocks.
pub(crate) fn issue(
    backend: &dyn Backend,
    noted: Noted,
    result: Handle,
    rates: &Rates,
    term: Term,
) -> Result<Handle, Unissued> {
    let refused = |why: &str| Err(Unissued::Refused(why.to_owned()));
    let Some(signing) = backend.signing() else { return refused("this node signs nothing") };
    if !noted.is_lasting {
        return refused(
            "the result depends on something that need not come again, as a deadline or the world outside: \
             nobody could check a receipt of it",
        );
    }
    let Some(steps) = noted.steps else {
        let most = objects::RECEIPT_STEPS_MAX;
        return refused(&format!(
            "its computation has more than {most} applications, as many as a receipt can have, or more than the \
             node writes down at a time"
        ));
    };
    let (steps, uncounted_nanos) = records(backend, &steps)?;
    let Sums { applications, ran, whole, now } = Sums::of(&steps);
    let statement = Statement {
        goal: noted.goal,
        result,
        node: signing.public_key(),
        steps_hash: steps_hash(&steps),
        issued_ms: millis(since_1970()),
        is_fresh: noted.is_fresh,
        applications,
        ran,
        whole,
        now,
        uncounted_nanos,
        by_ms: term.by().map_or(0, millis),
        price: price(&now, uncounted_nanos, rates, term),
    };
    let signature = signing.sign(&statement);
    let bytes = Receipt { statement, signature, steps }.to_bytes();
    let kept = backend.keep_many(&[BundleRecord::Blob(&bytes)])?;
    kept.first().copied().ok_or_else(|| Unissued::Refused("the receipt could not be kept".to_owned()))
}

fn price(now: &Cost, uncounted_nanos: u64, rates: &Rates, term: Term) -> Price {
    Price {
        amount: rates.of_evaluation(now, uncounted_nanos, term),
        factor_ppm: rates.factor_ppm(term),
        currency: rates.currency.clone(),
    }
}

/// The steps as a receipt has them, in order; and the wall time of those that ran now
/// and count no fuel.
fn records(backend: &dyn Backend, steps: &[NotedStep]) -> Result<(Vec<ReceiptStep>, u64), Unissued> {
    let mut inputs = Inputs::new(backend);
    let mut uncounted_nanos = 0_u64;
    let mut records = Vec::with_capacity(steps.len());
    for &NotedStep { application, result, nanos, fuel, ran_now } in steps {
        let Cost { inputs_bytes, reserved_bytes, uncounted, .. } = inputs.up_front(application)?;
        let is_counted = uncounted == 0;
        if ran_now && !is_counted {
            uncounted_nanos = uncounted_nanos.saturating_add(nanos);
        }
        let fuel = if is_counted { fuel } else { 0 };
        let record =
            ReceiptStep { application, result, inputs_bytes, reserved_bytes, fuel, ran_now, is_counted };
        records.push(record);
    }
    records.sort_unstable_by_key(|record| *record.application.as_bytes());
    Ok((records, uncounted_nanos))
}

/// The inputs of applications, each entry's reckoned once.
pub(crate) struct Inputs<'a> {
    backend: &'a dyn Backend,
    known: HashMap<Handle, u64>,
    looked: usize,
}

impl<'a> Inputs<'a> {
    pub(crate) fn new(backend: &'a dyn Backend) -> Self {
        Self { backend, known: HashMap::new(), looked: 0 }
    }

    /// What an application whose encodes are replaced costs before it runs; and, as
    /// [`Cost::uncounted`], whether it sets no limit of fuel. One that is malformed, and
    /// so fails, costs nothing.
    pub(crate) fn up_front(&mut self, application: Handle) -> Result<Cost, Unissued> {
        let Some(definition) = self.backend.get(application.plain_tree())? else {
            return Err(gone(application));
        };
        let Ok(Application { tree, limits, .. }) = Application::from_tree(definition.as_tree()) else {
            return Ok(Cost { uncounted: 1, ..Cost::default() });
        };
        let Limits { memory_bytes, fuel, .. } = limits;
        let inputs_bytes = objects::inputs_bytes(tree, |entry| self.below(entry))?;
        Ok(Cost { inputs_bytes, reserved_bytes: memory_bytes, fuel: 0, uncounted: u64::from(fuel == 0) })
    }

    /// The bytes of a tree and of all in it that can be read, each once.
    fn below(&mut self, entry: Handle) -> Result<u64, Unissued> {
        if let Some(&known) = self.known.get(&entry) {
            return Ok(known);
        }
        let bytes = objects::repository_bytes(entry, |object| {
            self.looked += 1;
            if self.looked > OBJECTS_MAX {
                return Err(Unissued::Refused(format!(
                    "its applications have more than {OBJECTS_MAX} objects among their inputs"
                )));
            }
            if !object.names_tree() {
                return Ok(None);
            }
            self.backend.get(object)?.ok_or_else(|| gone(object)).map(Some)
        })?;
        if self.known.len() < ENTRIES_MAX {
            self.known.insert(entry, bytes);
        }
        Ok(bytes)
    }
}

fn gone(handle: Handle) -> Unissued {
    Unissued::Refused(format!("{handle}, which its cost depends on, is not on this node any more; ask again"))
}

#[cfg(test)]
mod tests;
