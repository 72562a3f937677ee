// SPDX-License-Identifier: Apache-2.0
//! Looks whether this machine has what a node needs, and says what to do.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use objects::{Limits, TreeBuilder};
use sandbox::Call;
use sandbox::process::{Abilities, Bounds, Language, Rootfs, Runtime, RuntimeOptions, Serving};
use sandbox::wasm::{Codelets, Invoker};
use store::Store;

use crate::config::{self, Budgets, Options};

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// A short name.
    pub name: &'static str,
    /// Whether all is well.
    pub is_ok: bool,
    /// What was found.
    pub detail: String,
    /// What to do if not.
    pub remedy: String,
}

const MEMORY_WANTED_BYTES: u64 = 1 << 30;
const DISK_WANTED_BYTES: u64 = 1 << 30;

/// Looks at everything. What only process sandboxes want is told, but fails
/// the check only where they would have no walls at all. Changes nothing but a probe file in the home, and which control group
/// this process is in.
pub fn doctor(options: &Options) -> Vec<Check> {
    let mut checks = vec![memory(), cpus(options), engine()];
    checks.extend(layers());
    checks.push(files_of_functions());
    if !options.sandbox_init.is_empty() {
        let settings = RuntimeOptions { init: options.sandbox_init.clone(), ..RuntimeOptions::default() };
        let runtime = Runtime::new(settings).map_err(|error| error.to_string());
        checks.push(container(&runtime));
        let template = |language| template(language, &options.interpreter(language), &runtime);
        checks.extend(Language::INTERPRETED.map(template));
        checks.push(java());
    }
    if let Some(home) = &options.home {
        checks.push(home_is_writable(home));
        checks.push(disk_space(home));
        checks.push(node_answers(home));
    }
    if let Some(address) = options.listen {
        checks.push(port_is_free(address));
    }
    checks
}

fn memory() -> Check {
    let total = config::machine_memory_bytes();
    Check {
        name: "memory",
        is_ok: total >= MEMORY_WANTED_BYTES,
        detail: format!("{} MiB", total >> 20),
        remedy: "a node wants 1 GiB; give the machine more, or start with --memory".to_owned(),
    }
}

fn cpus(options: &Options) -> Check {
    let budgets = Budgets::new(options);
    Check {
        name: "cpus",
        is_ok: true,
        detail: format!("{}, {} workers", config::cpus(), budgets.workers),
        remedy: String::new(),
    }
}

fn engine() -> Check {
    let ran = run_codelet();
    Check {
        name: "wasm engine",
        is_ok: ran.is_ok(),
        detail: ran.err().unwrap_or_else(|| "compiles and runs".to_owned()),
        remedy: "the process may need executable memory: look for a MemoryDenyWriteExecute or noexec rule"
            .to_owned(),
    }
}

/// The layers that confine native code. One without which containers are made
/// all the same does not make the machine unfit.
fn layers() -> Vec<Check> {
    let abilities = match Abilities::look() {
        Ok(abilities) => abilities,
        Err(error) => return vec![unknown("sandboxes", error.to_string())],
    };
    let layers = abilities.layers().into_iter().map(|layer| {
        let is_missing = !layer.holds;
        let detail = match (is_missing, layer.is_optional) {
            (true, true) => format!("missing: {}; to have it, {}", layer.detail, layer.remedy),
            _ => layer.detail,
        };
        Check {
            name: layer.name,
            is_ok: layer.holds || layer.is_optional,
            detail,
            remedy: layer.remedy.to_owned(),
        }
    });
    layers.collect()
}

/// How functions see their code and layers (decision 0031).
fn files_of_functions() -> Check {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let overlay = match known.lines().any(|line| line.trim_start_matches("nodev").trim() == "overlay") {
        true => "this kernel has overlays, which are not used",
        false => "this kernel has no overlays, which are not needed",
    };
    Check {
        name: "layers",
        is_ok: true,
        detail: format!("bound read-only, each in a place of its own; {overlay}"),
        remedy: String::new(),
    }
}

fn unknown(name: &'static str, detail: String) -> Check {
    Check { name, is_ok: false, detail, remedy: "mount /proc".to_owned() }
}

/// Makes a container and takes it away.
fn container(runtime: &Result<Arc<Runtime>, String>) -> Check {
    let began = Instant::now();
    let tried = runtime.as_ref().map_err(String::clone).and_then(|runtime| {
        let made = runtime.prepare(&Rootfs::host_programs(), &Bounds::default());
        made.and_then(sandbox::process::Container::destroy).map_err(|error| error.to_string())
    });
    Check {
        name: "containers",
        is_ok: tried.is_ok(),
        detail: match &tried {
            Ok(()) => format!("one was made and taken away in {:.1} ms", began.elapsed().as_secs_f64() * 1e3),
            Err(error) => error.clone(),
        },
        remedy:
            "start the node as root, or allow user namespaces; only native, Python and Node functions need it"
                .to_owned(),
    }
}

/// Starts a template of a language. Who has no functions in it needs none.
fn template(language: Language, interpreter: &Path, runtime: &Result<Arc<Runtime>, String>) -> Check {
    let began = Instant::now();
    let serving = match runtime {
        Ok(runtime) => language.probe(interpreter, runtime),
        Err(reason) => Serving::No { reason: reason.clone() },
    };
    Check {
        name: match language {
            Language::Python => "python",
            Language::Executable => "executable",
            Language::Node => "node.js",
        },
        is_ok: true,
        detail: match serving {
            Serving::Forked { version, layout, huge_pages } => {
                let pages = match huge_pages {
                    Ok(0) => String::new(),
                    Ok(count) => format!(" with {count} huge pages"),
                    Err(why) => format!(" without huge pages, so that forking takes longer: {why}"),
                };
                let took = began.elapsed().as_secs_f64() * 1e3;
                format!("{version}, layout {layout}; a template started in {took:.0} ms{pages}")
            }
            Serving::Cold { reason } => format!(
                "{} functions are served, but instances are started one by one, which takes longer: {reason}",
                language.name()
            ),
            Serving::No { reason } => format!(
                "{} functions cannot run here: {reason}{}",
                language.name(),
                missing(language, interpreter)
            ),
        },
        remedy: String::new(),
    }
}

/// What to do about an interpreter that is not there; nothing if it is.
fn missing(language: Language, interpreter: &Path) -> &'static str {
    let mut folders =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or(vec![]);
    if interpreter.components().count() > 1 {
        folders = vec![Path::new("/").to_owned()];
    }
    match language {
        _ if folders.iter().any(|folder| folder.join(interpreter).exists()) => "",
        Language::Python => "; apt-get install python3, or say where it is: `sinew up --python PROGRAM`",
        Language::Node => "; apt-get install nodejs, or say where it is: `sinew up --nodejs PROGRAM`",
        Language::Executable => "",
    }
}

/// Looks for a Java where containers see one.
fn java() -> Check {
    let found = ["/usr/local/bin/java", "/usr/bin/java"].into_iter().find_map(|path| {
        let real = Path::new(path).canonicalize().ok()?;
        // It lies in `bin` of a folder that says which one it is.
        let version = std::fs::read_to_string(real.parent()?.parent()?.join("release")).unwrap_or_default();
        let version = version.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="));
        Some((real.clone(), version.unwrap_or("of some version").trim_matches('"').to_owned()))
    });
    Check {
        name: "java",
        is_ok: true,
        detail: match found {
            Some((path, version)) if path.starts_with("/usr") => {
                format!("{version}, {}; each instance is started", path.display())
            }
            Some((path, _)) => format!(
                "Java functions cannot run here: {} is outside of /usr, where containers see nothing",
                path.display()
            ),
            None => "Java functions cannot run here: there is no /usr/bin/java; \
                apt-get install openjdk-17-jdk-headless"
                .to_owned(),
        },
        remedy: String::new(),
    }
}

/// The smallest codelet: `apply` returns its argument.
const IDENTITY: &[u8] =
    b"\0asm\x01\0\0\0\x01\x06\x01\x60\x01\x7f\x01\x7f\x03\x02\x01\0\x07\x09\x01\x05apply\0\0\x0a\x06\x01\x04\0\x20\0\x0b";

/// Compiles a codelet and runs it, with nothing but memory.
fn run_codelet() -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let options = store::Options { home: None, memory_bytes: 64 << 20, relations_bytes: 1 << 20 };
    let store = Arc::new(Store::open(options).map_err(|error| text(&error))?);
    let procedure = store.put_blob(IDENTITY).map_err(|error| text(&error))?;
    let limits = Limits::default();
    let mut tree = TreeBuilder::new();
    tree.push(limits.handle().ok_or("the default limits have no handle")?).push(procedure);
    let handle = store.keep_tree(tree.view());
    let application = store.local(handle).ok_or("the store lost a tree")?;
    let options = sandbox::wasm::Options { workers: 1, ..sandbox::wasm::Options::default() };
    let codelets = Codelets::new(options, store).map_err(|error| text(&error))?;
    let outcome = Invoker::new(codelets).invoke(Call::new(application, handle, limits, procedure));
    outcome.result.map(|_| ()).map_err(|fault| format!("{}: {}", fault.code, fault.detail))
}

fn home_is_writable(home: &Path) -> Check {
    let probe = home.join(".doctor");
    let written = std::fs::create_dir_all(home).and_then(|()| std::fs::write(&probe, b"probe"));
    let _ = std::fs::remove_file(&probe);
    Check {
        name: "home",
        is_ok: written.is_ok(),
        detail: match &written {
            Ok(()) => format!("{} is writable", home.display()),
            Err(error) => format!("{}: {error}", home.display()),
        },
        remedy: "choose another with --home or SINEW_HOME".to_owned(),
    }
}

fn disk_space(home: &Path) -> Check {
    match linux::disk_free_bytes(home) {
        Ok(free) => Check {
            name: "disk",
            is_ok: free >= DISK_WANTED_BYTES,
            detail: format!("{} MiB free", free >> 20),
            remedy: "free some, or choose another home".to_owned(),
        },
        Err(error) => Check {
            name: "disk",
            is_ok: false,
            detail: error.to_string(),
            remedy: "choose another home".to_owned(),
        },
    }
}

fn node_answers(home: &Path) -> Check {
    let socket = home.join(crate::SOCKET_NAME);
    let connected = std::os::unix::net::UnixStream::connect(&socket);
    Check {
        name: "node",
        is_ok: true,
        detail: match connected {
            Ok(_) => format!("answers at {}", socket.display()),
            Err(_) => "not running; `sinew up` starts one".to_owned(),
        },
        remedy: String::new(),
    }
}

fn port_is_free(address: std::net::SocketAddr) -> Check {
    let bound = std::net::TcpListener::bind(address);
    Check {
        name: "port",
        is_ok: true,
        detail: match &bound {
            Ok(_) => format!("{address} is free"),
            Err(error) => format!("{address}: {error} (a running node holds its own)"),
        },
        remedy: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_functions_lack_is_told() {
        let runtime = Runtime::new(RuntimeOptions::default()).map_err(|error| error.to_string());
        let said = |interpreter: &str, runtime| {
            let check = template(Language::Python, Path::new(interpreter), runtime);
            assert!(check.is_ok, "who has no functions needs none");
            check.detail
        };
        let served = said("python3", &runtime);
        // An own template needs the rights of root; the init of a realm is not this program.
        assert!(served.contains("a template started") || served.contains("one by one"), "{served}");
        assert!(said("/bin/true", &runtime).contains("cannot run here"));
        assert!(said("python3", &Err("no namespaces".to_owned())).contains("cannot run here: no namespaces"));
    }
}
