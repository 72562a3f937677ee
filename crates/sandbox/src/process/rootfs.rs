// SPDX-License-Identifier: Apache-2.0
//! The file tree of a container: what it is made of, and making it.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use linux::Restrictions;

use super::bounds::Weakness;
use super::error::Error;

/// Binds of one container, at most.
pub(super) const BINDS_MAX: usize = 64;
/// Where programs and libraries are.
const PROGRAMS: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];
/// What they look up when they begin, and certificates; all of it for everybody to read.
const SETTINGS: [&str; 8] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/locale.alias",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
];
/// Of JDKs and Pythons with settings of their own, that functions see.
const RUNTIMES_MAX: usize = 12;
/// The least room of `/tmp`: a page for each of a few files.
const TMP_BYTES_MIN: u64 = 64 << 10;
/// The root holds nothing but places for mounts.
const ROOT_BYTES: u64 = 1 << 20;
const ROOT_INODES: u64 = 2048;
/// Where the shelf is until [`take`] has put what is wanted in its place.
const SHELF: &str = "shelf";
/// Devices without state, and without rights over others.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Something of the host that a container sees, read-only, without devices
/// and set-user-id programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// A file or folder here. A link is followed.
    pub host: PathBuf,
    /// Where it is there: absolute, without `..`.
    pub guest: PathBuf,
}

impl Bind {
    /// The same path here and there.
    pub fn same(path: impl Into<PathBuf>) -> Self {
        let host = path.into();
        Self { guest: host.clone(), host }
    }
}

/// What a container sees as its files: its binds, a `/proc` that knows only
/// its processes, a `/dev` with five devices, and an empty `/tmp` of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rootfs {
    /// What it sees of the host.
    pub read_only: Vec<Bind>,
    /// Symbolic links, and what they say.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Empty folders, in which something can be put later
    /// ([`Container::attach`](super::Container::attach)).
    pub places: Vec<PathBuf>,
    /// A folder of the host of which some entries can be put in those places
    /// later, where nobody can bring mounts from outside: in a user namespace.
    /// Code does not see it.
    pub shelf: Option<PathBuf>,
    /// Room in `/tmp`; counted as memory too.
    pub tmp_bytes: u64,
}

impl Rootfs {
    /// The host's programs and libraries, those of its package manager, what they look
    /// up when they begin, whom TLS trusts, and 16 MiB of `/tmp`.
    pub fn host_programs() -> Self {
        let mut rootfs = Self { tmp_bytes: 16 << 20, ..Self::default() };
        for folder in PROGRAMS.iter().map(Path::new) {
            match fs::read_link(folder) {
                // What leads to a folder that is seen leads there inside as well: a
                // mount less, and files have the names that they have outside.
                Ok(target) if Path::new("/").join(&target).starts_with("/usr") && is_plain_link(&target) => {
                    rootfs.links.push((folder.to_owned(), target));
                }
                _ if folder.exists() => rootfs.read_only.push(Bind::same(folder)),
                _ => {}
            }
        }
        let settings = SETTINGS.iter().map(PathBuf::from).filter(|path| path.exists());
        // Some systems keep a part of each JDK there, and of each Python.
        let listed = fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path());
        let is_wanted = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            (name.starts_with("java-") || name.starts_with("python3")) && path.is_dir()
        };
        let runtimes = listed.filter(is_wanted).take(RUNTIMES_MAX);
        rootfs.read_only.extend(settings.chain(runtimes).map(Bind::same));
        rootfs
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let mounts = self.read_only.len() + self.places.len() + self.links.len();
        if mounts > BINDS_MAX {
            return Err(Error::Invalid(format!("{mounts} binds and places; at most {BINDS_MAX}")));
        }
        let guests = self.read_only.iter().map(|bind| &bind.guest);
        let links = self.links.iter().map(|(place, _)| place);
        match guests.chain(&self.places).chain(links).find(|guest| !is_plain(guest)) {
            Some(guest) => Err(Error::Invalid(format!(
                "{} is not a place for a bind: it must be absolute and plain, outside of /proc, /dev and /tmp",
                guest.display()
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn quota(&self) -> (u64, u64) {
        let bytes = self.tmp_bytes.max(TMP_BYTES_MIN);
        (bytes, (bytes / 4096).clamp(64, 1 << 16))
    }
}

/// Whether it says a way down only, from the root or from where it is.
fn is_plain_link(target: &Path) -> bool {
    target.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

fn is_plain(guest: &Path) -> bool {
    let mut parts = guest.components();
    let is_ours = ["/proc", "/dev", "/tmp", "/old", "/shelf"].iter().any(|ours| guest.starts_with(ours));
    parts.next() == Some(Component::RootDir)
        && parts.clone().count() > 0
        && parts.all(|part| matches!(part, Component::Normal(_)))
        && !is_ours
}

/// Makes the tree and changes the root to it. Runs in the init, in a mount
/// namespace of its own.
///
/// # Errors
/// What could not be mounted.
pub(super) fn enter(rootfs: &Rootfs, weakness: Weakness) -> io::Result<()> {
    let hard = Restrictions::NO_SETUID.and(Restrictions::NO_DEVICES);
    let bound = [
        (Weakness::SETUID, Restrictions::NO_SETUID),
        (Weakness::DEVICES, Restrictions::NO_DEVICES),
        (Weakness::WRITABLE, Restrictions::READ_ONLY),
    ];
    let bound = bound.into_iter().filter(|(off, _)| !weakness.has(*off));
    let bound = bound.fold(Restrictions::default(), |all, (_, one)| all.and(one));
    let mut binds = Vec::new();
    for bind in &rootfs.read_only {
        let copy = linux::copy_tree(&bind.host, bound).map_err(at("bind", &bind.host))?;
        binds.push((copy, bind));
    }
    let hardest = hard.and(Restrictions::READ_ONLY);
    let shelf = rootfs.shelf.as_deref();
    let shelf = shelf.map(|path| linux::copy_tree(path, hardest).map_err(at("bind", path))).transpose()?;
    let device = Restrictions::READ_ONLY.and(Restrictions::NO_SETUID).and(Restrictions::NO_EXEC);
    let mut devices = Vec::new();
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        devices.push((linux::copy_tree(&path, device).map_err(at("bind", &path))?, name));
    }
    // The new root needs a place to be mounted; /proc is always there, and the
    // old one is of no more use.
    let root = linux::new_memory_files(ROOT_BYTES, ROOT_INODES, 0o755, hard)?;
    linux::attach(root.as_fd(), Path::new("/proc")).map_err(at("mount", Path::new("/")))?;
    linux::change_directory(root.as_fd())?;
    for (copy, bind) in &binds {
        place(copy, &bind.host, &relative(&bind.guest))?;
    }
    for (link, target) in &rootfs.links {
        symlink(target, relative(link)).map_err(at("link", link))?;
    }
    for empty in &rootfs.places {
        let empty = relative(empty);
        fs::create_dir_all(&empty).map_err(at("make", &empty))?;
    }
    make_dev(&devices)?;
    mount("proc", &proc_mount(weakness)?)?;
    mount("tmp", &tmp_mount(rootfs, weakness)?)?;
    if let Some(shelf) = &shelf {
        mount(SHELF, shelf)?;
    }
    let old = weakness.has(Weakness::OLD_ROOT).then(|| Path::new("old"));
    if let Some(old) = old {
        fs::create_dir(old)?;
    }
    linux::restrict(root.as_fd(), Restrictions::READ_ONLY)?;
    linux::change_root(old)
}

/// Puts what is wanted of the shelf in its places, and takes the shelf away.
/// Runs in pid 1, before anybody's code.
///
/// # Errors
/// What could not be mounted.
pub(super) fn take(wanted: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    let hard = Restrictions::NO_SETUID.and(Restrictions::NO_DEVICES).and(Restrictions::READ_ONLY);
    let shelf = Path::new("/").join(SHELF);
    for (taken, place) in wanted {
        let copy = linux::copy_tree(&shelf.join(taken), hard).map_err(at("open", taken))?;
        linux::attach(copy.as_fd(), place).map_err(at("mount", place))?;
    }
    linux::detach(&shelf)
}

fn proc_mount(weakness: Weakness) -> io::Result<OwnedFd> {
    let hard = Restrictions::NO_SETUID.and(Restrictions::NO_DEVICES).and(Restrictions::NO_EXEC);
    if weakness.has(Weakness::WHOLE_PROC) {
        return linux::new_file_system("proc", &[], hard);
    }
    // Only folders of processes, and of those only one's own: no /proc/sys,
    // sysrq-trigger, kcore, keys, and nothing of the init's.
    let options = [("hidepid", "invisible"), ("subset", "pid")];
    linux::new_file_system("proc", &options, hard.and(Restrictions::READ_ONLY))
}

fn tmp_mount(rootfs: &Rootfs, weakness: Weakness) -> io::Result<OwnedFd> {
    let (bytes, inodes) = if weakness.has(Weakness::NO_QUOTA) { (1 << 40, 1 << 24) } else { rootfs.quota() };
    let hard = if weakness.has(Weakness::DEVICES) {
        Restrictions::NO_SETUID
    } else {
        Restrictions::NO_SETUID.and(Restrictions::NO_DEVICES)
    };
    linux::new_memory_files(bytes, inodes, 0o1777, hard)
}

fn mount(place: &str, mount: &OwnedFd) -> io::Result<()> {
    fs::create_dir_all(place)?;
    linux::attach(mount.as_fd(), Path::new(place)).map_err(at("mount", Path::new(place)))
}

fn make_dev(devices: &[(OwnedFd, &str)]) -> io::Result<()> {
    fs::create_dir("dev")?;
    for (device, name) in devices {
        let place = Path::new("dev").join(name);
        fs::write(&place, b"")?;
        linux::attach(device.as_fd(), &place).map_err(at("mount", &place))?;
    }
    let links = [("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1")];
    for (name, target) in links.into_iter().chain([("stderr", "/proc/self/fd/2"), ("shm", "/tmp")]) {
        symlink(target, Path::new("dev").join(name))?;
    }
    Ok(())
}

/// Puts a bind in its place, which is made if a bind before has not brought it.
fn place(copy: &OwnedFd, host: &Path, guest: &Path) -> io::Result<()> {
    let made = if fs::metadata(host)?.is_dir() {
        fs::create_dir_all(guest)
    } else {
        let folder = guest.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).and_then(|()| if guest.exists() { Ok(()) } else { fs::write(guest, b"") })
    };
    made.map_err(at("make a place for", guest))?;
    linux::attach(copy.as_fd(), guest).map_err(at("mount", guest))
}

/// A checked guest path, from the root as working directory.
fn relative(guest: &Path) -> PathBuf {
    guest.strip_prefix("/").unwrap_or(guest).to_owned()
}

fn at<'a>(what: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> io::Error + 'a {
    move |error| io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn is_refused(guest: &str) -> bool {
        let bind = Bind { host: "/usr".into(), guest: guest.into() };
        let places = vec![guest.into()];
        let by_place = Rootfs { places, ..Rootfs::default() }.check().is_err();
        let by_bind = Rootfs { read_only: vec![bind], ..Rootfs::default() }.check().is_err();
        assert_eq!(by_place, by_bind);
        by_bind
    }

    #[test]
    fn places_are_plain() {
        for guest in ["usr", "/", "/a/../b", "..", "/proc/self", "/dev", "/tmp/x", ""] {
            assert!(is_refused(guest), "{guest}");
        }
        for guest in ["/usr", "/function/code", "/tmpfiles"] {
            assert!(!is_refused(guest), "{guest}");
        }
        assert!(Rootfs { read_only: vec![Bind::same("/usr"); 65], ..Rootfs::default() }.check().is_err());
    }

    #[test]
    fn what_leads_to_programs_is_a_link_as_on_the_host() {
        let rootfs = Rootfs::host_programs();
        rootfs.check().unwrap();
        for (link, target) in &rootfs.links {
            assert_eq!(&fs::read_link(link).unwrap(), target);
            assert!(link.canonicalize().unwrap().starts_with("/usr"), "{}", link.display());
        }
        let is_there = |path: &Path| {
            rootfs.read_only.iter().any(|bind| bind.guest == path)
                || rootfs.links.iter().any(|(link, _)| link == path)
        };
        assert!(PROGRAMS.iter().map(Path::new).filter(|path| path.exists()).all(is_there));
        assert!(is_plain_link(Path::new("usr/lib")) && is_plain_link(Path::new("/usr/lib")));
        assert!(!is_plain_link(Path::new("../usr/lib")) && !is_plain_link(Path::new("./lib")));
        let private =
            |bind: &Bind| bind.host.starts_with("/etc/ssl/private") || bind.host == Path::new("/etc");
        assert!(!rootfs.read_only.iter().any(private));
    }

    #[test]
    fn quotas_have_a_floor_and_a_ceiling() {
        let quota = |tmp_bytes| Rootfs { tmp_bytes, ..Rootfs::default() }.quota();
        assert_eq!(quota(0), (64 << 10, 64));
        assert_eq!(quota(16 << 20), (16 << 20, 4096));
        assert_eq!(quota(1 << 40), (1 << 40, 1 << 16));
    }
}
