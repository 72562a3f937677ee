// SPDX-License-Identifier: Apache-2.0
//! Where the processes of instances come from: a template that forks them, or an
//! interpreter that is started for each.
//!
//! As root the template is a child of the node's, and may enter every container;
//! what functions bring is loaded by one in a [`Realm`]. Without root each is in
//! one, and where there can be none, or nothing can be forked after what was
//! imported, instances are started one by one.

use std::sync::Arc;

use super::cold::Cold;
use super::language::Language;
use super::options::{FunctionsOptions, Interpreter};
use super::realm::Realm;
use super::runtime::Runtime;
use super::template::{Hello, Nursery, Refusal, Template, TemplateOptions, Unforkable};
use crate::Error;

/// Where processes come from.
pub(super) enum Starter {
    Template(Nursery),
    Cold(Box<Cold>),
}

impl Starter {
    /// What these functions can have here, and the realm that it is in.
    ///
    /// # Errors
    /// [`Error::Template`] if nothing can be started; [`Error::NotBrought`] if it
    /// is only that what functions bring keeps the template from forking, or has no
    /// place here.
    pub(super) fn new(
        options: &FunctionsOptions,
        runtime: &Runtime,
    ) -> Result<(Self, Option<Arc<Realm>>), Error> {
        if options.brought.is_some() {
            let realm = brought(options, runtime).map_err(Error::NotBrought)?;
            return match Nursery::new(options.template(Some(realm.clone()))) {
                Ok(nursery) => Ok((Self::Template(nursery), Some(realm))),
                Err(Refusal::Fork(unforkable)) => Err(Error::NotBrought(unforkable.reason)),
                Err(Refusal::Serve(reason)) => Err(options.cannot_serve(reason)),
            };
        }
        if runtime.abilities().is_root || options.language == Language::Executable {
            return Ok((Self::of_child(options)?, None));
        }
        let made = in_realm(options, runtime).or_else(|refusal| Ok((cold(options, refusal)?, None)));
        made.map_err(|reason| options.cannot_serve(reason))
    }

    /// A template that is a child of this process, with all its rights. If it
    /// cannot fork, each instance is started, but where forking is demanded.
    ///
    /// # Errors
    /// [`Error::Template`].
    pub(super) fn of_child(options: &FunctionsOptions) -> Result<Self, Error> {
        if options.language == Language::Executable {
            return Ok(Self::Cold(Box::new(Cold::adapter())));
        }
        match Nursery::new(options.template(None)) {
            Ok(nursery) => Ok(Self::Template(nursery)),
            Err(Refusal::Fork(unforkable)) if !options.must_fork => Ok(started(options, unforkable)),
            Err(refusal) => Err(options.cannot_serve(refusal.reason())),
        }
    }

    /// The interpreter, and where it lies.
    pub(super) fn interpreter(&self) -> Result<Interpreter, String> {
        match self {
            Self::Template(nursery) => {
                let template = nursery.template()?;
                let Hello { interpreter, prefixes, .. } = &template.hello;
                Ok(Interpreter { program: interpreter.clone(), prefixes: prefixes.clone() })
            }
            Self::Cold(cold) => Ok(cold.interpreter()),
        }
    }
}

fn started(options: &FunctionsOptions, unforkable: Unforkable) -> Starter {
    let cold = Cold::new(options.language, unforkable, &options.packages, &options.imports);
    Starter::Cold(Box::new(cold))
}

/// Where a template loads what functions bring.
fn brought(options: &FunctionsOptions, runtime: &Runtime) -> Result<Arc<Realm>, String> {
    let none = || "these sandboxes have no directory for the files of functions".to_owned();
    let (brought, layers) = options.brought.as_ref().zip(options.layers.as_deref()).ok_or_else(none)?;
    let room = options.room(brought.memory_bytes);
    Realm::of_brought(runtime, options.language, brought, layers, room).map(Arc::new)
}

/// A template of the node's own that is in a realm: who is not root has the right
/// to enter containers only there.
fn in_realm(options: &FunctionsOptions, runtime: &Runtime) -> Result<(Starter, Option<Arc<Realm>>), Refusal> {
    // Its realm has to be made of the folders that it lies in.
    let Unforkable { interpreter, prefixes, .. } = model(options, Vec::new())?;
    let interpreter = Interpreter { program: interpreter, prefixes };
    let room = options.room(options.usual_memory_bytes);
    let realm = Arc::new(Realm::of_node(runtime, interpreter, &options.packages, room)?);
    let nursery = Nursery::new(options.template(Some(realm.clone())))?;
    Ok((Starter::Template(nursery), Some(realm)))
}

/// What is started one by one, because of this. That it would load is shown by a
/// child of this process, which runs nobody's function.
fn cold(options: &FunctionsOptions, refusal: Refusal) -> Result<Starter, String> {
    let reason = refusal.reason();
    let found = model(options, options.imports.clone()).map_err(Refusal::reason)?;
    match options.must_fork {
        true => Err(reason),
        false => Ok(started(options, Unforkable { reason, ..found })),
    }
}

/// Where the interpreter lies, as it says itself once it has imported these.
pub(super) fn model(options: &FunctionsOptions, imports: Vec<String>) -> Result<Unforkable, Refusal> {
    let asked = TemplateOptions { imports, is_to_fork: false, ..options.template(None) };
    match Template::start(&asked) {
        Err(Refusal::Fork(unforkable)) => Ok(unforkable),
        Err(refusal) => Err(refusal),
        Ok(_) => Err(Refusal::Serve("it forks although it was not asked to".to_owned())),
    }
}
