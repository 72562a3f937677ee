// SPDX-License-Identifier: Apache-2.0
//! Debuggers of functions. An instance that may be debugged listens on its own
//! loopback, which nobody outside can reach; the container's init makes
//! connections there for whoever holds a [`Debuggee`].

use std::fmt::Debug;
use std::net::TcpStream;
use std::sync::{Arc, Weak};

use super::instance::Life;
use super::language::Language;

/// Where on its loopback an instance is debugged.
pub(super) const DEBUGGER_PORT: u16 = 3129;

/// Who leads debuggers to instances. Only a node whose owner wants that has one:
/// nothing that a function says or does makes it debuggable.
pub trait Debuggers: Debug + Send + Sync {
    /// The newest instance of a function is this one. It listens once it is loaded.
    fn began(&self, function: &str, language: Language, debuggee: Debuggee);
}

/// An instance that may be debugged, for as long as it lives.
#[derive(Clone)]
pub struct Debuggee {
    life: Weak<Life>,
}

impl Debuggee {
    pub(super) fn new(life: &Arc<Life>) -> Self {
        Self { life: Arc::downgrade(life) }
    }

    /// A connection to what debugs it, from within.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub fn connect(&self) -> Result<TcpStream, String> {
        let life = self.life.upgrade().filter(|life| life.is_alive());
        let life = life.ok_or("the instance has ended; the next request makes another one")?;
        life.connect(DEBUGGER_PORT)
    }
}
