// SPDX-License-Identifier: Apache-2.0
//! Labels and relations: whether all is there that they name, however deep.

use std::collections::HashMap;

use objects::Handle;

use super::{Finding, Inspector};
use crate::disk::Looked;
use crate::files::is_large;
use crate::index::RelationRow;
use crate::visited::Visited;
use crate::{Error, Object};

/// Relations that lead nowhere and are told one by one.
const TOLD_MAX: u64 = 1000;

/// What is missing behind an object, for example: what, and which tree names it.
type Gap = (Handle, Option<Handle>);

impl Inspector<'_, '_> {
    /// Walks only if something is missing: otherwise it is enough that roots are there.
    pub(super) fn names(&mut self) -> Result<(), Error> {
        let Some(index) = self.place.index else { return Ok(()) };
        let mut walk = Walk {
            visited: Visited::default(),
            hurt: HashMap::new(),
            is_deep: !self.missing.is_empty() || !self.lost.is_empty(),
        };
        let mut hurts = false;
        for (name, handle) in index.label_rows()? {
            self.checked.labels += 1;
            let Some(handle) = handle else {
                self.found(Finding::label(&name));
                self.bad_labels.push(name);
                continue;
            };
            if let Some((missing, tree)) = walk.gap(self, handle)? {
                self.checked.hurt_labels += 1;
                hurts = true;
                if tree.is_none() && !self.lost.contains(&missing) {
                    // No tree names it: nobody else has noticed.
                    self.miss(missing, handle.plain_tree());
                }
                self.found(Finding::hurt(&name, missing, tree));
            }
        }
        self.relations(&mut walk)?;
        if let Some((missing, tree)) = self.missing.iter().next().filter(|_| !hurts) {
            let finding = Finding::incomplete(self.missing.len() as u64, *missing, *tree);
            self.found(finding);
        }
        Ok(())
    }

    fn relations(&mut self, walk: &mut Walk) -> Result<(), Error> {
        let Some(index) = self.place.index else { return Ok(()) };
        let mut behind = None;
        loop {
            let rows = index.relations_behind(behind)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            behind = Some(*last);
            for (key, row) in rows {
                let gap = match row {
                    RelationRow::Outdated => continue,
                    RelationRow::Damaged => None,
                    RelationRow::Is(record) => {
                        self.checked.relations += 1;
                        let Some((missing, _)) = walk.gap(self, record.result)? else { continue };
                        Some(missing)
                    }
                };
                self.bad_relations.push(key);
                let finding = Finding::relation(&key, gap);
                match self.bad_relations.len() as u64 <= TOLD_MAX {
                    true => self.found(finding),
                    false => self.checked.count(&finding),
                }
            }
        }
    }
}

/// One walk over all roots.
struct Walk {
    visited: Visited,
    /// Objects behind which something is missing.
    hurt: HashMap<Handle, Gap>,
    is_deep: bool,
}

/// A tree whose entries are being walked.
struct Frame {
    key: Handle,
    tree: Object,
    next: usize,
    gap: Option<Gap>,
}

enum Met {
    Whole,
    Hurt(Gap),
    Tree(Frame),
}

impl Walk {
    /// What is missing of what a root names, if anything is.
    fn gap(&mut self, inspector: &Inspector<'_, '_>, root: Handle) -> Result<Option<Gap>, Error> {
        if !self.is_deep {
            let absent = inspector.place.absent(std::iter::once(root))?;
            return Ok(absent.into_iter().find(|key| !inspector.known.contains(key)).map(|key| (key, None)));
        }
        let mut stack = match self.enter(inspector, root, None)? {
            Met::Whole => return Ok(None),
            Met::Hurt(gap) => return Ok(Some(gap)),
            Met::Tree(frame) => vec![frame],
        };
        let mut last = None;
        while let Some(frame) = stack.last_mut() {
            let entry = frame.tree.as_tree().get(frame.next);
            frame.next += 1;
            if let Some(entry) = entry {
                let parent = frame.key;
                match self.enter(inspector, entry, Some(parent))? {
                    Met::Whole => {}
                    Met::Hurt(gap) => frame.gap = frame.gap.or(Some(gap)),
                    Met::Tree(child) => stack.push(child),
                }
                continue;
            }
            let Some(frame) = stack.pop() else { break };
            if let Some(gap) = frame.gap {
                self.hurt.insert(frame.key, gap);
                if let Some(parent) = stack.last_mut() {
                    parent.gap = parent.gap.or(Some(gap));
                }
            }
            last = frame.gap;
        }
        Ok(last)
    }

    fn enter(
        &mut self,
        inspector: &Inspector<'_, '_>,
        handle: Handle,
        parent: Option<Handle>,
    ) -> Result<Met, Error> {
        if handle.literal_bytes().is_some() {
            return Ok(Met::Whole);
        }
        let key = handle.plain_tree();
        if let Some(gap) = self.hurt.get(&key) {
            return Ok(Met::Hurt(*gap));
        }
        let Some(index) = inspector.place.index else { return Ok(Met::Whole) };
        let spot = if is_large(key) { None } else { index.spot(key)? };
        if inspector.known.contains(&key) || !self.visited.is_new(key, spot) {
            return Ok(Met::Whole);
        }
        let is_there = match is_large(key) {
            true => inspector.place.files.contains(key)?,
            false => spot.is_some(),
        };
        if !is_there && index.tiered(key)?.is_some() {
            // With what it names: it was sent because it was whole here.
            return Ok(Met::Whole);
        }
        if !is_there && let Some(definition) = inspector.place.recipe(key)? {
            // A tree, which is never dropped.
            return self.enter(inspector, definition, parent);
        }
        let mut is_sound = is_there && !inspector.lost.contains(&key);
        if is_sound && key.names_tree() {
            if let Looked::Sound(tree) = inspector.place.look(key)? {
                return Ok(Met::Tree(Frame { key, tree, next: 0, gap: None }));
            }
            is_sound = false;
        }
        if is_sound {
            return Ok(Met::Whole);
        }
        self.hurt.insert(key, (key, parent));
        Ok(Met::Hurt((key, parent)))
    }
}
