// SPDX-License-Identifier: Apache-2.0
//! Calls of other functions, which an application makes while it runs.
//!
//! The sandbox knows neither functions' names nor who may call whom: it hands
//! on what the application asks for, and back what came of it.

use crate::line::{LineAsk, LineOffer};
use crate::within::Within;

/// A call of another function, as the application asks for it. Nothing of it
/// is checked but its lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedCall {
    /// The name of the function.
    pub function: String,
    /// What the body is; may be empty.
    pub content_type: String,
    /// What the function gets.
    pub body: Vec<u8>,
    /// What it has to do with lines.
    pub line: LineAsk,
}

/// What came of a nested call. It has the status of an answer by HTTP: below
/// 400 it went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NestedAnswer<'a> {
    /// How it ended.
    pub status: u16,
    /// What the body is; may be empty.
    pub content_type: &'a str,
    /// The answer, or why there is none.
    pub body: &'a [u8],
}

/// Hears what came of a nested call, and whether there may be a line to the function.
pub type Answered = Box<dyn for<'a> FnOnce(NestedAnswer<'a>, Option<Box<dyn LineOffer>>) + Send>;

/// Whoever makes the nested calls of one application.
pub trait Callees: Send + Sync {
    /// Begins a call. What came of it is told once, by any thread, maybe before
    /// this returns; never, if what this returns is dropped before: then nobody
    /// wants it any more, and it is to be stopped. Does not block.
    fn call(&self, nested: NestedCall, answered: Answered) -> Box<dyn Send>;

    /// Whether the function that is asked for is to be called within the instance that asks: then nobody else makes
    /// the call. Does not block.
    fn within(&self, _nested: &NestedCall) -> Option<Within> {
        None
    }

    /// What the application was told of its own request, if that is known.
    fn head(&self) -> Option<Vec<u8>> {
        None
    }
}
