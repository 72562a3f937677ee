// SPDX-License-Identifier: Apache-2.0
//! A node in miniature that runs Python functions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::{Handle, Limits, TreeBuilder};
use sandbox::process::{
    Brought, Functions, FunctionsOptions, Language, Layer, Layers, Runtime, RuntimeOptions, Weakness,
};
use sandbox::{Call, Callees, Fault, Invoked, Sandbox as _, SandboxId, Spec};
use store::Store;

pub(crate) const CGROUP_NAME: &str = "sinew-functions";

pub(crate) struct World {
    // Before what its instances look at.
    pub(crate) functions: Functions,
    pub(crate) store: Arc<Store>,
    pub(crate) sources: Sources,
    /// Of every function.
    pub(crate) limits: Limits,
    /// Where layers are written out, if there are any.
    _layers: Option<tempfile::TempDir>,
    /// One that is there for nobody.
    _shelved: Option<Arc<Layer>>,
}

/// A module of this name in a layer that a function brings.
#[derive(Clone, Copy)]
pub(crate) struct Module<'a> {
    pub(crate) name: &'a str,
    pub(crate) source: &'a str,
}

impl Module<'_> {
    /// The layer: with the module where its language looks for it.
    fn layer(&self, language: Language, store: &Store) -> Handle {
        let folder = |line: String, child: Handle| {
            let tree: TreeBuilder = [store.keep_blob(line.as_bytes()), child].into_iter().collect();
            store.keep_tree(tree.view())
        };
        let source = store.keep_blob(self.source.as_bytes());
        match language {
            Language::Node => {
                let package = folder("f index.js\n".to_owned(), source);
                folder("d node_modules\n".to_owned(), folder(format!("d {}\n", self.name), package))
            }
            Language::Python | Language::Executable => folder(format!("f {}.py\n", self.name), source),
        }
    }
}

/// A folder of packages that lasts for the test; not in `/tmp`, which
/// containers have of their own.
pub(crate) struct Packages(PathBuf);

impl Packages {
    /// With one module in it.
    pub(crate) fn new(file: &str, source: &str) -> Self {
        let folder = PathBuf::from(format!("/var/tmp/sinew-packages-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        std::fs::write(folder.join(file), source).unwrap();
        Self(folder)
    }

    /// Where the template imports the module `imported` of these.
    pub(crate) fn imported(&self, language: Language) -> FunctionsOptions {
        let (imports, packages) = (vec!["imported".to_owned()], vec![self.0.clone()]);
        FunctionsOptions { imports, packages, ..options(language) }
    }
}

impl Drop for Packages {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The same functions in one language and another.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) echo: &'static str,
    pub(crate) raising: &'static str,
    pub(crate) endless: &'static str,
    pub(crate) malformed: &'static str,
    /// Waits half a second.
    pub(crate) slow: &'static str,
}

fn sources(language: Language) -> Sources {
    match language {
        Language::Python => Sources {
            echo: "def apply(x):\n    return x\n",
            raising: "def apply(*x):\n    raise ValueError('no good')\n",
            endless: "def apply(*x):\n    while True: pass\n",
            malformed: "def apply(:",
            slow: "import time\ndef apply(x):\n    time.sleep(0.5)\n    return b'ok'\n",
        },
        Language::Node => Sources {
            echo: "exports.apply = (x) => x;\n",
            raising: "exports.apply = () => { throw new RangeError('no good'); };\n",
            endless: "exports.apply = () => { for (;;); };\n",
            malformed: "exports.apply = (",
            slow: "exports.apply = () => new Promise((done) => setTimeout(done, 500, Buffer.from('ok')));\n",
        },
        // It has files, and no source.
        Language::Executable => Sources { echo: "", raising: "", endless: "", malformed: "", slow: "" },
    }
}

pub(crate) fn options(language: Language) -> FunctionsOptions {
    FunctionsOptions {
        call_timeout: Duration::from_secs(3),
        ready: 0,
        blanks: 0,
        ..FunctionsOptions::new(language)
    }
}

fn runtime(weakness: Weakness) -> Result<Arc<Runtime>, String> {
    let options =
        RuntimeOptions { cgroup_name: CGROUP_NAME.to_owned(), weakness, ..RuntimeOptions::default() };
    Runtime::new(options).map_err(|error| error.to_string())
}

/// Whether the kernel has that wall; where it has not, no test of it.
pub(crate) fn has_landlock() -> bool {
    runtime(Weakness::NONE).is_ok_and(|runtime| runtime.abilities().landlock.is_some())
}

/// Why there can be no such world on this machine.
pub(crate) fn missing() -> Option<String> {
    match runtime(Weakness::NONE) {
        Ok(runtime) if !runtime.abilities().is_root => Some("needs root".to_owned()),
        Ok(runtime) if !runtime.abilities().limits_memory => Some("needs control groups".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error),
    }
}

fn new_store() -> Arc<Store> {
    let memory = store::Options { home: None, memory_bytes: 1 << 28, relations_bytes: 1 << 20 };
    Arc::new(Store::open(memory).unwrap())
}

impl World {
    pub(crate) fn new(language: Language) -> Self {
        Self::with(options(language), Weakness::NONE)
    }

    pub(crate) fn with(options: FunctionsOptions, weakness: Weakness) -> Self {
        let store = new_store();
        let sources = sources(options.language);
        let functions = Functions::new(options, runtime(weakness).unwrap(), store.clone()).unwrap();
        Self { functions, store, sources, limits: Limits::default(), _layers: None, _shelved: None }
    }

    /// Where a template loads a module that functions bring; or why there is none.
    pub(crate) fn bringing(
        options: FunctionsOptions,
        module: Module<'_>,
        weakness: Weakness,
    ) -> Result<Self, sandbox::Error> {
        let (store, runtime) = (new_store(), runtime(weakness).unwrap());
        let own = Functions::new(options.clone(), runtime.clone(), store.clone())?;
        // Not in /tmp, which containers have of their own.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let layers = Layers::open(&folder.path().join("layers"), store.clone(), 1 << 20).unwrap();
        let brought = Brought {
            layers: vec![module.layer(options.language, &store)],
            interpreter: own.interpreter().unwrap(),
            memory_bytes: 256 << 20,
            all_bytes: 2 << 30,
            stored_bytes: 64 << 20,
        };
        let options = FunctionsOptions {
            imports: vec![module.name.to_owned()],
            layers: Some(Arc::new(layers)),
            brought: Some(brought),
            ..options
        };
        let sources = sources(options.language);
        let functions = Functions::new(options, runtime, store.clone())?;
        Ok(Self {
            functions,
            store,
            sources,
            limits: Limits::default(),
            _layers: Some(folder),
            _shelved: None,
        })
    }

    /// With a folder of files of functions, of which there is one's.
    pub(crate) fn shelved(options: FunctionsOptions) -> Self {
        let (store, folder) = (new_store(), tempfile::tempdir_in("/var/tmp").unwrap());
        let layers = Layers::open(&folder.path().join("layers"), store.clone(), 1 << 20).unwrap();
        let tree = Module { name: "others", source: "" }.layer(options.language, &store);
        let shelved = layers.get(tree).unwrap();
        let sources = sources(options.language);
        let options = FunctionsOptions { layers: Some(Arc::new(layers)), ..options };
        let functions = Functions::new(options, runtime(Weakness::NONE).unwrap(), store.clone()).unwrap();
        let limits = Limits::default();
        Self { functions, store, sources, limits, _layers: Some(folder), _shelved: Some(shelved) }
    }

    /// With so much memory for each function.
    pub(crate) fn with_memory(self, memory_bytes: u64) -> Self {
        Self { limits: Limits { memory_bytes, ..self.limits }, ..self }
    }

    /// Why there is no such world.
    pub(crate) fn refused(options: FunctionsOptions) -> String {
        let made = Functions::new(options, runtime(Weakness::NONE).unwrap(), new_store());
        made.err().unwrap().to_string()
    }

    pub(crate) fn spec(&self, source: &str) -> Spec {
        Spec { procedure: self.store.keep_blob(source.as_bytes()), limits: self.limits }
    }

    pub(crate) fn call(&self, source: &str, arguments: &[Handle]) -> Call {
        let Spec { procedure, limits } = self.spec(source);
        let mut entries = vec![limits.handle().unwrap(), procedure];
        entries.extend(arguments);
        let tree: TreeBuilder = entries.into_iter().collect();
        let handle = self.store.keep_tree(tree.view());
        Call::new(self.store.local(handle).unwrap(), handle, limits, procedure)
    }

    pub(crate) fn created(&self, source: &str) -> SandboxId {
        let id = self.functions.create(&[self.spec(source)]).pop().unwrap().unwrap();
        self.functions.start(&[id]).pop().unwrap().unwrap();
        id
    }

    pub(crate) fn invoke(&self, id: SandboxId, source: &str, argument: &[u8]) -> Result<Vec<u8>, Fault> {
        self.invoke_with(id, source, argument, None)
    }

    /// The same, where others may be called.
    pub(crate) fn invoke_with(
        &self,
        id: SandboxId,
        source: &str,
        argument: &[u8],
        callees: Option<Arc<dyn Callees>>,
    ) -> Result<Vec<u8>, Fault> {
        let argument = self.store.keep_blob(argument);
        let call = Call { callees, ..self.call(source, &[argument]) };
        let Invoked::Done(outcome) = self.functions.invoke(id, call).unwrap();
        outcome.result.map(|handle| match handle.literal_bytes() {
            Some(bytes) => bytes.to_vec(),
            None => self.store.local(handle).unwrap().bytes().to_vec(),
        })
    }

    pub(crate) fn end(&self, id: SandboxId) {
        self.functions.kill(&[id]).pop().unwrap().unwrap();
        self.functions.delete(&[id]).pop().unwrap().unwrap();
    }

    /// Creates, calls once, deletes.
    pub(crate) fn run(&self, source: &str) -> Result<Vec<u8>, Fault> {
        let id = self.created(source);
        let result = self.invoke(id, source, b"");
        self.end(id);
        result
    }

    /// The text that `apply` returns whose body these lines are.
    pub(crate) fn says(&self, lines: &str) -> String {
        match self.run(&apply(lines)) {
            Ok(bytes) => String::from_utf8(bytes).unwrap(),
            Err(fault) => format!("fault {fault}"),
        }
    }

    /// A neighbour is served at this moment.
    pub(crate) fn assert_others_are_served(&self) {
        let began = Instant::now();
        let id = self.created(self.sources.echo);
        assert_eq!(self.invoke(id, self.sources.echo, b"abc").unwrap(), b"abc");
        assert!(began.elapsed() < Duration::from_secs(5), "a neighbour waited {:?}", began.elapsed());
        self.end(id);
    }
}

/// A function with these lines as its body.
pub(crate) fn apply(lines: &str) -> String {
    let body: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("import os, sys, time, ctypes, signal\ndef apply(x):\n{body}")
}

/// A function that tries something and says whether it was refused.
pub(crate) fn attempt(lines: &str) -> String {
    let body: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "libc = ctypes.CDLL(None, use_errno=True)\n\
         def check(result):\n    if result == -1: raise OSError(ctypes.get_errno(), 'refused')\n    return result\n\
         try:\n{body}    return b'done'\nexcept OSError as error:\n    return b'refused %d' % error.errno"
    )
}
