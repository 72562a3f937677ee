// SPDX-License-Identifier: Apache-2.0
//! Sandboxes that are processes: containers in which native programs run.
//!
//! A [`Container`] is a set of namespaces, a file tree of its own and a
//! control group, held by a process of ours, its *init*, which is pid 1 of
//! the container and the first to go. It is prepared before anybody's code is
//! in it, is used for one function of one owner, and is destroyed with all
//! that ever ran in it. [`Runtime`] makes them, [`Pool`] keeps some ready.
//! [`Functions`] puts functions into them, forked from a template process.
//!
//! Invariants: user code runs only after the whole of [`Confinement`] holds;
//! it can hold no descriptor, file or process beyond its container's end;
//! every wait for a container is bounded; what a container leaves on the host
//! is nothing.

mod blanks;
mod bounds;
pub mod bundle;
mod chain;
mod channel;
mod cold;
mod confinement;
mod contained;
mod container;
mod debugger;
mod error;
mod filter;
mod functions;
mod image;
pub mod init;
mod instance;
mod kept;
mod language;
mod layers;
mod options;
mod outbound;
mod phases;
mod place;
mod plan;
mod pool;
mod reactor;
mod realm;
mod recipe;
mod report;
mod rootfs;
mod runtime;
mod seat;
mod secrets;
mod starter;
mod target;
mod template;
mod threads;
mod within;

pub use bounds::{Bounds, Usage, Weakness};
pub use confinement::Confinement;
pub use container::{Container, Process, Program};
pub use debugger::{Debuggee, Debuggers};
pub use error::Error;
pub use functions::Functions;
pub use image::{IMPORTS_MAX, Image, Part, Settings, is_module, runtime_of};
pub use kept::TooMuchKept;
pub use language::{InterpreterFacts, Language, Serving};
pub use layers::{Layer, Layers};
pub use linux::Exit;
pub use options::{Brought, FunctionsOptions, Interpreter};
pub use outbound::{Outbound, Outlet};
pub use pool::Pool;
pub use reactor::{Next, Reactor, Ready};
#[doc(hidden)]
pub use report::is_reports;
pub use rmmap::Plan;
pub use rootfs::{Bind, Rootfs};
pub use runtime::{Abilities, Ability, Runtime, RuntimeOptions};
pub use secrets::SecretSource;
pub use template::Layout;
