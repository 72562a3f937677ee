// SPDX-License-Identifier: Apache-2.0
//! Deployments of workflows that are declared (`docs/spec/workflows.md`, section 7): what they are is a
//! text, and nothing of theirs is run but the functions that they name.

use std::sync::Arc;

use gateway::Declaration;
use objects::{Handle, TreeView};
use store::Store;

use super::deployment::tree;

/// What the first entry of the procedure says.
const RUNTIME: &[u8] = b"sinew:workflow";

/// Checks the declaration of a workflow, in JSON.
///
/// # Errors
/// What is wrong with it, for people; what is wrong with a step begins with `step NAME: `.
pub fn check_workflow(text: &[u8]) -> Result<(), String> {
    Declaration::read(text).map(drop)
}

/// Takes a procedure apart; `None`: it is another one.
///
/// # Errors
/// What is wrong with it, for people.
pub(super) fn read(store: &Store, procedure: Handle) -> Result<Option<Arc<Declaration>>, String> {
    let data = tree(store, procedure)?;
    let mut entries = TreeView::from_checked(&data).iter();
    if entries.next().and_then(|first| first.literal_bytes().map(<[u8]>::to_vec)).as_deref() != Some(RUNTIME)
    {
        return Ok(None);
    }
    let (Some(text), None) = (entries.next(), entries.next()) else {
        return Err("its procedure is not [sinew:workflow, declaration]".to_owned());
    };
    if !text.is_object() || text.names_tree() {
        return Err("its declaration is no blob".to_owned());
    }
    let found = store.get(text).map_err(|error| error.to_string())?;
    let found = found.ok_or_else(|| format!("the declaration {text} is not on this node; put it first"))?;
    Declaration::read(&found).map(|declaration| Some(Arc::new(declaration)))
}
