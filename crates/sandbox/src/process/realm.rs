// SPDX-License-Identifier: Apache-2.0
//! A container for a template, in which the containers of its instances are made.
//!
//! A template enters containers, so that what it loads must be trusted with all
//! that it can enter. Packages of a function are trusted by nobody but that
//! function. So this one has users and process numbers of its own, and the
//! containers of functions that bring the same packages are the only ones in
//! them: it has rights over these, and over nothing else. It is confined like any
//! other code but that it may enter what it is given, and become one of the users
//! of containers.
//!
//! Without the rights of root every template is in one, for only there it has the
//! right to enter anything. Its user is then the only one, and each container has
//! a user namespace below.
//!
//! What it says is not believed: where the interpreter lies the node knows from
//! its own template, and of what a child became it hears from the child. It can
//! spoil instances of its function, which the same packages could as well. What it
//! keeps of them it has for as long as the realm lives: within the memory of all, and no more
//! of it than `kept` says.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use linux::{Cgroup, Hierarchies};

use super::contained::{bounds, rootfs};
use super::container::{Container, Process, Program};
use super::language::Language;
use super::layers::{Layer, Layers};
use super::options::{Brought, Interpreter, Room};
use super::recipe;
use super::runtime::Runtime;

/// More memory than there is.
const UNLIMITED_BYTES: u64 = i64::MAX as u64;

/// What all containers of a realm have in common; it stays until the last has gone.
#[derive(Debug)]
pub(super) struct Ground {
    /// The first of its users.
    pub(super) users_first: u32,
    /// Where their control groups are made: below one that limits the memory of all,
    /// also what a template keeps of instances that have ended.
    pub(super) hierarchies: Hierarchies,
    /// That one.
    pub(super) all: Option<Cgroup>,
    /// The memory of all; not limited where the template is trusted.
    pub(super) all_bytes: Option<u64>,
}

impl Ground {
    /// Whether its template has loaded only what is trusted like the node.
    pub(super) fn is_trusted(&self) -> bool {
        self.all_bytes.is_none()
    }
}

/// The home of a template that has rights over nothing else.
#[derive(Debug)]
pub(crate) struct Realm {
    container: Container,
    ground: Arc<Ground>,
    /// As the node's own template knows.
    interpreter: Interpreter,
    /// The folders that the template looks for modules in, as it sees them.
    packages: Vec<PathBuf>,
    /// What it sees of the functions' files.
    _layers: Vec<Arc<Layer>>,
}

impl Realm {
    /// A realm whose template finds what is brought where functions find it.
    ///
    /// # Errors
    /// Why it cannot be made here.
    pub(crate) fn of_brought(
        runtime: &Runtime,
        language: Language,
        brought: &Brought,
        layers: &Layers,
        room: Room,
    ) -> Result<Self, String> {
        let held = brought.layers.iter().map(|tree| layers.get(*tree)).collect::<Result<Vec<_>, _>>();
        let held = held.map_err(|fault| fault.detail)?;
        let interpreter = brought.interpreter.clone();
        let mut seen = rootfs(&interpreter.prefixes, room.tmp_bytes);
        // As root, mounts are brought from outside.
        seen.shelf = (!runtime.abilities().is_root).then(|| layers.root().to_owned());
        let made = runtime.prepare_realm(&seen, &bounds(room), Some(brought.all_bytes));
        let (container, ground) = made.map_err(|error| error.to_string())?;
        let attached = container.attach(&recipe::layer_binds(language, &held));
        attached.map_err(|error| error.to_string())?;
        let packages = recipe::layer_folders(language, held.len());
        Ok(Self { container, ground, interpreter, packages, _layers: held })
    }

    /// A realm for a template that loads what is the node's own, where there is
    /// nobody who may enter containers without one.
    ///
    /// # Errors
    /// Why it cannot be made here.
    pub(crate) fn of_node(
        runtime: &Runtime,
        interpreter: Interpreter,
        packages: &[PathBuf],
        room: Room,
    ) -> Result<Self, String> {
        let folders = [&interpreter.prefixes, packages].concat();
        let room = Room { memory_bytes: UNLIMITED_BYTES, ..room };
        let made = runtime.prepare_realm(&rootfs(&folders, room.tmp_bytes), &bounds(room), None);
        let (container, ground) = made.map_err(|error| error.to_string())?;
        Ok(Self { container, ground, interpreter, packages: packages.to_vec(), _layers: Vec::new() })
    }

    pub(super) fn container(&self) -> &Container {
        &self.container
    }

    pub(super) fn ground(&self) -> &Arc<Ground> {
        &self.ground
    }

    /// Ends all that is in it, instances too.
    pub(crate) fn kill(&self) {
        self.container.kill();
    }

    /// What runs in it.
    pub(crate) fn interpreter(&self) -> &Interpreter {
        &self.interpreter
    }

    /// The folders that the template looks for modules in, as it sees them.
    pub(crate) fn packages(&self) -> &[PathBuf] {
        &self.packages
    }

    /// Memory that is charged to the template, zero where that is not known.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // What cannot be read is not counted.
        self.container.usage().map_or(0, |usage| usage.memory_bytes)
    }

    /// Memory that is charged to no container in it; `None` where that cannot be seen.
    pub(super) fn kept_bytes(&self) -> Option<u64> {
        self.ground.all.as_ref()?.kept_bytes().ok()
    }

    /// Whether all in it has ended, instances too.
    pub(crate) fn is_over(&self) -> bool {
        self.container.has_ended()
    }

    /// Starts the template, with these as its standard streams.
    pub(super) fn run(&self, program: &Program, stdio: [OwnedFd; 3]) -> Result<Process, String> {
        self.container.run(program, stdio).map_err(|error| error.to_string())
    }
}
