// SPDX-License-Identifier: Apache-2.0
//! Where groups of version 2 are made.
//!
//! A group hands controllers down only while no process is in it; the root is the
//! exception. A process that is alone in its group makes way: it goes into a leaf
//! below, and its group hands down what it has. Where others are in the group too,
//! as in the scope of a login, groups are made beside it, below the nearest one that
//! hands down all that is wanted, or else, for who may write there, below the root.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Controller, Hierarchies, apart, is_writable};

/// The leaf of a process that has made way.
const LEAF: &str = "sinew-node";
/// Without one of these a group bounds too little to be passed by for a better one.
const WANTED: [Controller; 3] = [Controller::Memory, Controller::Processes, Controller::Cpu];

/// What groups can be made, for a process in `own`, where the tree is mounted at
/// `point`; `is_to_change` has it be so.
pub(super) fn find(point: &Path, own: &Path, is_to_change: bool) -> Hierarchies {
    // It may have made way before.
    let own = match own.file_name() {
        Some(name) if name == LEAF => own.parent().unwrap_or(own),
        _ => own,
    };
    if is_alone(own) {
        if !is_to_change {
            return handed_down(own, Wish::Could);
        }
        if let Some(leaf) = make_way(own) {
            let found = handed_down(own, Wish::Have);
            apart::weigh_as_all(&leaf);
            return found;
        }
    }
    let here = handed_down(own, of_occupied(own, is_to_change));
    // Only in the root does it matter to be one of many (`apart`), and may a process be moved by who is not
    // asked: elsewhere it is in the group of a login or a service, which goes by what is in it.
    if is_to_change
        && is_root(own)
        && here.has(Controller::Cpu)
        && let Some(leaf) = make_way(own)
    {
        apart::weigh_as_all(&leaf);
    }
    if is_enough(&here) || !own.starts_with(point) {
        return here;
    }
    let mut best = here;
    for around in own.ancestors().skip(1).take_while(|folder| folder.starts_with(point)) {
        let there = handed_down(around, of_occupied(around, is_to_change));
        if there.parents.len() > best.parents.len() {
            best = there;
        }
        if is_enough(&best) {
            break;
        }
    }
    best
}

/// Groups below one that no process is in.
pub(super) fn below(folder: &Path, is_to_change: bool) -> Hierarchies {
    handed_down(folder, if is_to_change { Wish::Have } else { Wish::Look })
}

/// What is done about controllers that are not handed down yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// Nothing: they are not there.
    Look,
    /// Nothing, but they could be.
    Could,
    /// They are, if that can be.
    Have,
}

/// With processes in it, or somebody else's around it, only the root can begin to.
fn of_occupied(folder: &Path, is_to_change: bool) -> Wish {
    match (is_root(folder), is_to_change) {
        (true, true) => Wish::Have,
        (true, false) => Wish::Could,
        (false, _) => Wish::Look,
    }
}

/// All others have a type.
fn is_root(folder: &Path) -> bool {
    !folder.join("cgroup.type").exists()
}

fn handed_down(folder: &Path, wish: Wish) -> Hierarchies {
    let mut parents = Vec::new();
    let listed = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let has = |file: &str, name: &str| listed(file).split_whitespace().any(|listed| listed == name);
    // Who is moved from elsewhere has to be allowed to be moved here.
    let is_ours = is_writable(folder) && is_writable(&folder.join("cgroup.procs"));
    for (controller, name) in Controller::VERSION_2.into_iter().filter(|_| is_ours) {
        if !has("cgroup.controllers", name) {
            continue;
        }
        let is_there = has("cgroup.subtree_control", name);
        if !is_there && wish == Wish::Have {
            // Refused while processes are in the folder itself.
            let _ = fs::write(folder.join("cgroup.subtree_control"), format!("+{name}"));
        }
        if is_there || wish == Wish::Could || has("cgroup.subtree_control", name) {
            parents.push((controller, folder.to_owned()));
        }
    }
    Hierarchies { version: 2, parents }
}

fn is_enough(hierarchies: &Hierarchies) -> bool {
    WANTED.iter().all(|controller| hierarchies.has(*controller))
}

/// Whether this process is the only one in this group, or none is, and may make
/// groups below.
fn is_alone(own: &Path) -> bool {
    let Ok(inside) = fs::read_to_string(own.join("cgroup.procs")) else { return false };
    let itself = std::process::id().to_string();
    is_writable(own) && inside.lines().all(|pid| pid == itself)
}

/// Goes into a leaf below the own group.
fn make_way(own: &Path) -> Option<PathBuf> {
    let leaf = own.join(LEAF);
    // One before, that ended, may have made it.
    let is_made = leaf.is_dir() || fs::create_dir(&leaf).is_ok();
    let is_there = is_made && fs::write(leaf.join("cgroup.procs"), std::process::id().to_string()).is_ok();
    is_there.then_some(leaf)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Folders that look like a tree of groups.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("sinew-unified-{name}-{}", std::process::id())))
        }

        fn group(&self, path: &str, controllers: &str, handed_down: &str, inside: &str) -> PathBuf {
            let folder = if path.is_empty() { self.0.clone() } else { self.0.join(path) };
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cgroup.controllers"), controllers).unwrap();
            fs::write(folder.join("cgroup.subtree_control"), handed_down).unwrap();
            fs::write(folder.join("cgroup.procs"), inside).unwrap();
            if !path.is_empty() {
                fs::write(folder.join("cgroup.type"), "domain").unwrap();
            }
            folder
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const ALL: &str = "cpu io memory pids";

    fn parents(found: &Hierarchies) -> Vec<&Path> {
        let mut all: Vec<&Path> = found.parents.iter().map(|(_, parent)| parent.as_path()).collect();
        all.dedup();
        all
    }

    #[test]
    fn who_is_alone_makes_way() {
        let tree = Tree::new("alone");
        let own = tree.group("service", ALL, "", &std::process::id().to_string());
        // Only looked at, nothing changes, and all could be had.
        let seen = find(&tree.0, &own, false);
        assert_eq!((seen.parents.len(), own.join(LEAF).exists()), (4, false));
        // A plain folder does not make files of its own, and keeps the last line.
        fs::create_dir(own.join(LEAF)).unwrap();
        find(&tree.0, &own, true);
        let moved = fs::read_to_string(own.join(LEAF).join("cgroup.procs")).unwrap();
        assert_eq!(moved, std::process::id().to_string());
        let weight = fs::read_to_string(own.join(LEAF).join("cpu.weight")).unwrap();
        let processors = crate::available_cpus().unwrap().len().min(16);
        assert_eq!(weight.parse::<usize>().unwrap(), 100 * processors);
        assert_eq!(fs::read_to_string(own.join("cgroup.subtree_control")).unwrap(), "+io");
        // From the leaf it is the same group.
        fs::write(own.join("cgroup.subtree_control"), ALL).unwrap();
        fs::write(own.join("cgroup.procs"), "").unwrap();
        let found = find(&tree.0, &own.join(LEAF), true);
        assert_eq!((parents(&found), found.parents.len()), (vec![own.as_path()], 4));
    }

    #[test]
    fn in_the_root_it_goes_into_a_leaf_though_others_are_there() {
        let tree = Tree::new("root");
        let point = tree.group("", ALL, ALL, "1\n2\n");
        fs::create_dir(point.join(LEAF)).unwrap();
        assert_eq!(find(&point, &point, false).parents.len(), 4);
        assert!(!point.join(LEAF).join("cgroup.procs").exists(), "it was only looked at");
        let found = find(&point, &point, true);
        assert_eq!((parents(&found), found.parents.len()), (vec![point.as_path()], 4));
        assert!(point.join(LEAF).join("cgroup.procs").exists());
        assert!(point.join(LEAF).join("cpu.weight").exists());
    }

    #[test]
    fn beside_others_groups_are_made_where_controllers_are_handed_down() {
        let tree = Tree::new("beside");
        let point = tree.group("", ALL, ALL, "1\n");
        let slice = tree.group("user.slice", ALL, "cpu memory pids", "");
        let own = tree.group("user.slice/session.scope", "cpu memory pids", "", "1\n2\n");
        let found = find(&point, &own, false);
        assert_eq!((parents(&found), found.parents.len()), (vec![slice.as_path()], 3));
        // One that hands down too little is passed by, for the root.
        fs::write(slice.join("cgroup.subtree_control"), "pids").unwrap();
        let found = find(&point, &own, false);
        assert_eq!(found.parents.len(), 4);
        assert_eq!(parents(&found), [point.as_path()]);
        // What is not to be written is nobody's.
        fs::remove_file(point.join("cgroup.procs")).unwrap();
        let found = find(&point, &own, false);
        assert_eq!((parents(&found), found.parents.len()), (vec![slice.as_path()], 1));
    }
}
