// SPDX-License-Identifier: Apache-2.0
//! What an instance is loaded with: the source of its procedure, or the
//! directories and the adapter of a function that is described as an image.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use objects::{FailureCode, Handle, Limits};
use store::Store;

use super::channel::SOURCE_LEN_MAX;
use super::image::Image;
use super::language::Language;
use super::layers::{Layer, Layers};
use super::rootfs::Bind;
use super::secrets::SecretSource;
use crate::{Call, Fault};

/// Where a function finds its code.
const CODE_PLACE: &str = "/app";
/// Where ES modules of Node look for packages, above the code.
const MODULES_PLACE: &str = "/node_modules";
/// Arguments of an application begin here, if its procedure is a blob.
const BLOB_ARGUMENTS: usize = 2;
/// The same, if it is an image of four entries.
const IMAGE_ARGUMENTS: usize = 5;

/// Where the layer of this number is.
pub(super) fn layer_place(number: usize) -> String {
    format!("/layers/{number}")
}

/// How a container sees the layers of a function.
pub(super) fn layer_binds(language: Language, layers: &[Arc<Layer>]) -> Vec<Bind> {
    let each = layers.iter().enumerate();
    let each = each.map(|(at, layer)| Bind { host: layer.path().to_owned(), guest: layer_place(at).into() });
    let mut binds: Vec<Bind> = each.collect();
    if language == Language::Node {
        let mut modules = layers.iter().map(|layer| layer.path().join("node_modules"));
        let first = modules.find(|path| path.is_dir());
        binds.extend(first.map(|host| Bind { host, guest: MODULES_PLACE.into() }));
    }
    binds
}

/// The folders of so many layers that hold modules, as containers see them.
pub(super) fn layer_folders(language: Language, count: usize) -> Vec<PathBuf> {
    let layers = (0..count).map(|at| PathBuf::from(layer_place(at)));
    match language {
        Language::Node => layers.flat_map(|layer| [layer.clone(), layer.join("node_modules")]).collect(),
        Language::Python | Language::Executable => layers.collect(),
    }
}

/// The places that containers of functions keep for code and layers.
pub(super) fn places() -> impl Iterator<Item = String> {
    let code_and_layers =
        std::iter::once(CODE_PLACE.to_owned()).chain((0..super::image::LAYERS_MAX).map(layer_place));
    code_and_layers.chain(std::iter::once(MODULES_PLACE.to_owned()))
}

/// The entry of an application with which the arguments of a function begin.
pub(super) fn arguments_start(procedure: Handle) -> usize {
    if procedure.names_tree() { IMAGE_ARGUMENTS } else { BLOB_ARGUMENTS }
}

/// Whether nobody can ask for the result again: each request of a function that
/// is not pure is a computation of its own.
pub(super) fn is_asked_once(call: &Call) -> bool {
    let request = call.application.as_tree().get(IMAGE_ARGUMENTS);
    call.procedure.names_tree()
        && request.and_then(|id| id.literal_bytes().map(|id| !id.is_empty())).unwrap_or(false)
}

/// What it takes to load a procedure.
#[derive(Debug)]
pub(super) struct Recipe {
    /// What the interpreter runs.
    pub(super) source: Vec<u8>,
    /// What the container sees besides.
    pub(super) binds: Vec<Bind>,
    /// Kept for as long as the instance may look at them.
    pub(super) layers: Vec<Arc<Layer>>,
    /// What its image says, if it is one.
    pub(super) image: Option<Image>,
}

impl Recipe {
    /// Of one call, if the procedure says so.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.image.as_ref().map(|image| image.settings.timeout)
    }

    /// Calls that may run in it at the same time.
    pub(super) fn calls_at_once(&self) -> u16 {
        self.image.as_ref().map_or(1, |image| image.settings.calls_at_once)
    }

    /// Whether it calls others, and is called, on lines.
    pub(super) fn speaks_lines(&self, language: Language) -> bool {
        self.image.as_ref().map_or(language != Language::Executable, Image::speaks_lines)
    }

    /// Looks a procedure up; its layers are written out if they are not there.
    pub(super) fn of(
        procedure: Handle,
        limits: Limits,
        language: Language,
        store: &Store,
        layers: Option<&Layers>,
        secrets: Option<&dyn SecretSource>,
        is_debugged: bool,
    ) -> Result<Self, Fault> {
        let missing = || Fault::new(FailureCode::MissingData, "the procedure is not an object that is here");
        if !procedure.is_object() {
            return Err(missing());
        }
        let found = store.get(procedure);
        let found = found.map_err(|error| Fault::new(FailureCode::Resources, error.to_string()))?;
        let bytes = found.ok_or_else(missing)?;
        if procedure.names_tree() {
            let image = Image::read(store, bytes.as_tree())?;
            return Self::of_image(image, limits, language, layers, secrets, is_debugged);
        }
        if bytes.bytes().len() > SOURCE_LEN_MAX {
            let why = format!("the source has {} bytes, more than {SOURCE_LEN_MAX}", bytes.bytes().len());
            return Err(Fault::new(FailureCode::BadProcedure, why));
        }
        Ok(Self { source: bytes.bytes().to_vec(), binds: Vec::new(), layers: Vec::new(), image: None })
    }

    fn of_image(
        image: Image,
        limits: Limits,
        language: Language,
        layers: Option<&Layers>,
        secrets: Option<&dyn SecretSource>,
        is_debugged: bool,
    ) -> Result<Self, Fault> {
        if image.runtime != language.runtime() {
            let why = format!("a function for {} cannot run in {}", image.runtime, language.runtime());
            return Err(Fault::new(FailureCode::BadProcedure, why));
        }
        let layers = layers.ok_or_else(|| {
            Fault::new(FailureCode::Resources, "these sandboxes have no directory for the files of functions")
        })?;
        let trees = std::iter::once(image.code).chain(image.layers.iter().copied());
        let held = trees.map(|tree| layers.get(tree)).collect::<Result<Vec<_>, _>>()?;
        let code = held.iter().take(1);
        let code = code.map(|code| Bind { host: code.path().to_owned(), guest: CODE_PLACE.into() });
        let binds = code.chain(layer_binds(language, &held[1..])).collect();
        let source = match language {
            Language::Executable => image.executable_source(limits, secrets)?,
            _ => {
                let settings = image.settings_line(limits, secrets, is_debugged)?;
                let proxy = if image.settings.allow_hosts.is_empty() { "" } else { language.proxy() };
                let debugger = if is_debugged { language.debugger() } else { "" };
                let parts = [language.settings_prefix(), &settings, proxy, debugger, language.adapter()];
                parts.concat().into_bytes()
            }
        };
        Ok(Self { source, binds, layers: held, image: Some(image) })
    }
}
