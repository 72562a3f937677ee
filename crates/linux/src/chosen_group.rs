// SPDX-License-Identifier: Apache-2.0
//! A control group at a path that somebody chose, with settings by the names
//! of their files: what bundles ask for.
//!
//! On version 1 the path is one in each tree of controllers; on version 2 it
//! is one folder. A path that begins with `/` is taken from where the
//! controllers are mounted, another one from this process's own group.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cgroup::below;

/// One line for one control file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSetting {
    /// The controller, as `memory`; the beginning of the file's name.
    pub controller: &'static str,
    /// The file, as `memory.limit_in_bytes`.
    pub file: String,
    /// What is written.
    pub value: String,
}

/// A group that may or may not be there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenGroup {
    version: u8,
    /// Names of controllers, and the group's folder in their tree.
    folders: Vec<(Vec<String>, PathBuf)>,
}

impl ChosenGroup {
    /// Where the group of this path is.
    ///
    /// # Errors
    /// `InvalidInput` for an empty path or one with `..`; what reading
    /// `/proc/self` says.
    pub fn at(path: &Path) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        Self::among(&mounts, &own, path)
    }

    fn among(mounts: &str, own: &str, path: &Path) -> io::Result<Self> {
        let is_plain =
            path.components().all(|part| matches!(part, Component::Normal(_) | Component::RootDir))
                && path.components().any(|part| matches!(part, Component::Normal(_)));
        if !is_plain {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a path for a control group"));
        }
        let mut folders = Vec::new();
        for (kind, root, point, options) in mounts.lines().filter_map(mount_line) {
            let names: Vec<String> = match kind {
                "cgroup" => {
                    options.split(',').filter(|name| is_controller(own, name)).map(str::to_owned).collect()
                }
                _ => continue,
            };
            let Some(first) = names.first() else { continue };
            let folder = folder(path, point, root, own_path(own, first));
            if !folders.iter().any(|(_, known)| *known == folder) {
                folders.push((names, folder));
            }
        }
        if !folders.is_empty() {
            return Ok(Self { version: 1, folders });
        }
        let unified = mounts.lines().filter_map(mount_line).find(|(kind, ..)| *kind == "cgroup2");
        Ok(match unified {
            Some((_, root, point, _)) => {
                let folder = folder(path, point, root, own_path(own, ""));
                Self { version: 2, folders: vec![(Vec::new(), folder)] }
            }
            None => Self { version: 0, folders },
        })
    }

    /// Of control groups; 0 if there are none.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Whether this machine has the controller.
    pub fn has(&self, controller: &str) -> bool {
        self.folder_of(controller).is_some()
    }

    fn folder_of(&self, controller: &str) -> Option<&Path> {
        let mut folders = self.folders.iter();
        let found = if self.version == 2 {
            folders.find(|(_, folder)| {
                let top = folder.ancestors().filter(|up| up.join("cgroup.controllers").exists()).last();
                let listed = top.and_then(|top| fs::read_to_string(top.join("cgroup.controllers")).ok());
                listed.is_some_and(|listed| listed.split_whitespace().any(|name| name == controller))
            })
        } else {
            folders.find(|(names, _)| names.iter().any(|name| name == controller))
        };
        found.map(|(_, folder)| folder.as_path())
    }

    /// Makes the group if it is not there, and sets what is to be set, in
    /// this order.
    ///
    /// # Errors
    /// What making folders and writing files says; `Unsupported` for a
    /// controller that is not there.
    pub fn make(&self, settings: &[GroupSetting]) -> io::Result<()> {
        for (_, folder) in &self.folders {
            fs::create_dir_all(folder).map_err(at("make", folder))?;
            if self.version == 1 && folder.join("cpuset.cpus").exists() {
                inherit_set(folder)?;
            }
        }
        for setting in settings {
            let folder = self.folder_of(setting.controller).ok_or_else(|| {
                let what = format!("this machine has no controller `{}`", setting.controller);
                io::Error::new(io::ErrorKind::Unsupported, what)
            })?;
            if self.version == 2 {
                hand_down(folder, setting.controller)?;
            }
            let file = folder.join(&setting.file);
            fs::write(&file, &setting.value).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot write `{}` to {}: {error}", setting.value, file.display()),
                )
            })?;
        }
        Ok(())
    }

    /// This process joins.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn join(&self) -> io::Result<()> {
        for (_, folder) in &self.folders {
            let file = folder.join(if self.version == 1 { "tasks" } else { "cgroup.procs" });
            fs::write(&file, "0").map_err(at("join", &file))?;
        }
        Ok(())
    }

    /// The processes in it.
    pub fn processes(&self) -> Vec<u32> {
        let Some((_, folder)) = self.folders.first() else { return Vec::new() };
        let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        listed.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Removes the group, trying until `patience` is over. Groups above it
    /// that were made with it stay, as others may use them.
    ///
    /// # Errors
    /// `ResourceBusy` if something is still in it.
    pub fn remove(&self, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        for (_, folder) in &self.folders {
            loop {
                match fs::remove_dir(folder) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) if Instant::now() > deadline => return Err(error),
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        }
        Ok(())
    }
}

/// Type, root, place and options of a mount.
fn mount_line(line: &str) -> Option<(&str, &str, &str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let mut before = before.split(' ').skip(3);
    Some((kind, before.next()?, before.next()?, options))
}

fn is_controller(own: &str, name: &str) -> bool {
    own.lines()
        .any(|line| line.split(':').nth(1).is_some_and(|names| names.split(',').any(|one| one == name)))
}

/// This process's group in the tree of a controller.
fn own_path<'a>(own: &'a str, controller: &str) -> &'a str {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        names.split(',').any(|name| name == controller).then_some(path)
    });
    path.unwrap_or("/")
}

fn folder(path: &Path, point: &str, root: &str, own: &str) -> PathBuf {
    match path.strip_prefix("/") {
        Ok(inside) => Path::new(point).join(inside),
        Err(_) => below(point, root, own).join(path),
    }
}

/// A new group of version 1 may use no processor until it is told which.
fn inherit_set(folder: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let unset: Vec<&Path> = folder
            .ancestors()
            .take_while(|up| fs::read_to_string(up.join(file)).is_ok_and(|text| text.trim().is_empty()))
            .collect();
        for up in unset.into_iter().rev() {
            let Some(above) = up.parent() else { continue };
            fs::write(up.join(file), fs::read_to_string(above.join(file))?).map_err(at("set", up))?;
        }
    }
    Ok(())
}

/// Has every group of version 2 above this one hand the controller down.
fn hand_down(folder: &Path, controller: &str) -> io::Result<()> {
    let above: Vec<&Path> =
        folder.ancestors().skip(1).take_while(|up| up.join("cgroup.subtree_control").exists()).collect();
    for up in above.into_iter().rev() {
        let file = up.join("cgroup.subtree_control");
        if !fs::read_to_string(&file)?.split_whitespace().any(|name| name == controller) {
            fs::write(&file, format!("+{controller}")).map_err(at("hand down by", &file))?;
        }
    }
    Ok(())
}

fn at<'a>(what: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> io::Error + 'a {
    move |error| io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
