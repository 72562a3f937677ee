// SPDX-License-Identifier: Apache-2.0
//! What hostile code can reach: kernel calls, files, processes, the network.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use sandbox::process::{Bind, Weakness};

use crate::control::look_alike;
use crate::world::World;
use crate::{Case, Needs};

const NONE: Weakness = Weakness::NONE;
const ANY_CALL: Weakness = Weakness::ANY_CALL;
const ROOT: Weakness = Weakness::ROOT;

/// `case!(name, attack, layers)`: one attack against some layers.
macro_rules! case {
    ($name:ident, [$($word:expr),*], [$($layer:expr),*]) => {
        Case {
            name: concat!("reach::", stringify!($name)),
            needs: Needs::Nothing,
            run: |world| world.assert_stopped(&[$($word),*], &[$($layer),*], NONE),
        }
    };
}

pub(crate) const CASES: &[Case] = &[
    case!(mount, ["call", "mount"], [ROOT, ANY_CALL, Weakness::NO_LANDLOCK]),
    case!(umount, ["call", "umount"], [ROOT, ANY_CALL, Weakness::NO_LANDLOCK]),
    case!(fsopen, ["call", "fsopen"], [ROOT, ANY_CALL]),
    case!(unshare_user, ["call", "unshare-user"], [ANY_CALL]),
    case!(unshare_net, ["call", "unshare-net"], [ROOT, ANY_CALL]),
    case!(clone_user, ["call", "clone-user"], [ANY_CALL]),
    case!(setns, ["call", "setns"], [ROOT, ANY_CALL]),
    case!(keyctl, ["call", "keyctl"], [ANY_CALL]),
    case!(add_key, ["call", "add-key"], [ANY_CALL]),
    case!(bpf, ["call", "bpf"], [ROOT, ANY_CALL]),
    case!(io_uring, ["call", "io-uring"], [ANY_CALL]),
    case!(perf_event_open, ["call", "perf"], [ANY_CALL]),
    case!(userfaultfd, ["call", "userfaultfd"], [ANY_CALL]),
    case!(chroot, ["call", "chroot"], [ROOT, ANY_CALL]),
    case!(pivot_root, ["call", "pivot-root"], [ROOT, ANY_CALL]),
    case!(reboot, ["call", "reboot"], [ROOT, ANY_CALL]),
    case!(swapon, ["call", "swapon"], [ROOT, ANY_CALL]),
    case!(kexec, ["call", "kexec"], [ROOT, ANY_CALL]),
    case!(init_module, ["call", "init-module"], [ROOT, ANY_CALL]),
    case!(settimeofday, ["call", "settimeofday"], [ANY_CALL]),
    case!(sethostname, ["call", "sethostname"], [ROOT, ANY_CALL]),
    Case { name: "reach::open_by_handle", needs: Needs::Nothing, run: open_by_handle },
    case!(process_vm_readv, ["call", "process-vm-readv"], [ANY_CALL]),
    case!(personality, ["call", "personality"], [ANY_CALL]),
    case!(setuid_call, ["call", "setuid"], [ROOT, ANY_CALL]),
    case!(terminal_input, ["call", "terminal-input"], [ANY_CALL]),
    case!(ptrace, ["ptrace"], [ANY_CALL]),
    case!(raw_socket, ["raw-socket"], [ROOT]),
    case!(packet_socket, ["packet-socket"], [ROOT, ANY_CALL]),
    case!(netlink_socket, ["netlink-socket"], [ANY_CALL]),
    case!(device, ["device"], [ROOT, ANY_CALL, Weakness::DEVICES]),
    case!(proc_sys, ["see", "/proc/sys", "/proc/sysrq-trigger"], [Weakness::WHOLE_PROC]),
    case!(proc_kernel, ["see", "/proc/kcore", "/proc/keys", "/proc/kmsg"], [Weakness::WHOLE_PROC]),
    case!(proc_of_init, ["see", "/proc/1"], [Weakness::WHOLE_PROC]),
    case!(host_files, ["read", "/etc/shadow", "/old/etc/shadow"], [Weakness::OLD_ROOT, ROOT]),
    case!(host_folders, ["see", "/root", "/home", "/var", "/sys", "/run", "/old"], [Weakness::OLD_ROOT]),
    Case { name: "reach::kill_host_processes", needs: Needs::Nothing, run: kill_host_processes },
    Case { name: "reach::abstract_socket_of_host", needs: Needs::Nothing, run: abstract_socket },
    Case { name: "reach::tcp_to_host", needs: Needs::Nothing, run: tcp_to_host },
    Case { name: "reach::metadata_service", needs: Needs::Nothing, run: metadata_service },
    Case { name: "reach::read_only_code", needs: Needs::Root, run: read_only_code },
    Case { name: "reach::setuid_program", needs: Needs::Root, run: setuid_program },
];

/// Kernels before 6.12 have whoever calls it hold a capability; later ones ask for less.
fn open_by_handle(world: &World) {
    let beside = if world.is_root() { ROOT } else { NONE };
    world.assert_stopped(&["call", "open-by-handle"], &[ANY_CALL], beside);
}

fn kill_host_processes(world: &World) {
    let pid = std::process::id().to_string();
    world.assert_stopped(&["kill", &pid], &[Weakness::HOST_PROCESSES, ROOT], NONE);
}

fn abstract_socket(world: &World) {
    let name = format!("sinew-hostile-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    world.assert_stopped(&["abstract-socket", &name], &[Weakness::HOST_NETWORK], NONE);
}

fn tcp_to_host(world: &World) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    world.assert_stopped(&["tcp", &address], &[Weakness::HOST_NETWORK], NONE);
}

/// Nobody answers there on most machines; that there is no way is what counts
/// (`functions/network.rs` has somebody answer).
fn metadata_service(world: &World) {
    let ran = world.attack(NONE, &["tcp", "169.254.169.254:80"]);
    assert!(ran.text.starts_with(&format!("refused {} ", libc::ENETUNREACH)), "{ran:?}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ran = world.attack(Weakness::HOST_NETWORK, &["tcp", &address]);
    look_alike(!world.is_root() || ran.text.starts_with("done"), format!("{ran:?}"));
}

/// The world with a folder of the test's in it, at `/own`.
fn with_folder(world: &World) -> (World, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut with = world.again();
    with.rootfs.read_only.push(Bind { host: folder.path().to_owned(), guest: "/own".into() });
    (with, folder)
}

fn read_only_code(world: &World) {
    let (world, folder) = with_folder(world);
    let code = folder.path().join("code");
    fs::write(&code, b"code").unwrap();
    fs::set_permissions(&code, fs::Permissions::from_mode(0o666)).unwrap();
    let ran =
        world.attack(NONE, &["write", "/own/code", "/own/new", "/new", "/usr/new", "/bin/new", "/dev/new"]);
    assert!(ran.text.starts_with("refused"), "{ran:?}");
    assert_eq!(fs::read(&code).unwrap(), b"code");
    let layers = [Weakness::WRITABLE, Weakness::NO_LANDLOCK];
    world.assert_stopped(&["write", "/own/code"], &layers, NONE);
    assert_eq!(fs::read(&code).unwrap(), b"changed", "the control did write");
}

fn setuid_program(world: &World) {
    let (world, folder) = with_folder(world);
    let program = folder.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let layers = [Weakness::SETUID, Weakness::NEW_PRIVILEGES];
    world.assert_program_stopped("/own/program", &["is-root"], &layers, ANY_CALL);
}
