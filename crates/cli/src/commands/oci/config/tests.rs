// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn read_value(value: &Value) -> anyhow::Result<Config> {
    read(&value.to_string(), Path::new("/"), "c1")
}

fn least() -> Value {
    json!({
        "ociVersion": "1.0.2",
        "root": {"path": "usr"},
        "process": {"args": ["true"], "cwd": "/"},
        "linux": {"namespaces": [{"type": "mount"}]},
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut config = least();
    let (above, name) = pointer.rsplit_once('/').unwrap();
    config.pointer_mut(above).unwrap()[name] = value;
    config
}

fn refusal(pointer: &str, value: Value) -> String {
    let refused = read_value(&with(pointer, value)).err();
    format!("{:#}", refused.unwrap_or_else(|| panic!("{pointer} was taken")))
}

#[test]
fn a_plain_bundle_is_read() {
    let config = read_value(&least()).unwrap();
    assert_eq!(config.bundle.root.path, Path::new("/usr"));
    assert_eq!(config.bundle.control_group, Path::new("sinew-oci-c1"));
    let process = config.bundle.process.unwrap();
    assert_eq!((process.bounding, process.forbids_new_privileges), (0, false));
}

#[test]
fn what_cannot_be_honoured_is_refused_by_its_path() {
    let cases = [
        ("/process/terminal", json!(true)),
        ("/process/apparmorProfile", json!("strict")),
        ("/process/selinuxLabel", json!("label")),
        ("/process/scheduler", json!({"policy": "SCHED_FIFO"})),
        ("/linux/mountLabel", json!("label")),
        ("/linux/intelRdt", json!({"closID": "a"})),
        ("/linux/personality", json!({"domain": "LINUX32"})),
        ("/linux/resources", json!({"hugepageLimits": [{"pageSize": "2MB", "limit": 1}]})),
        ("/linux/resources", json!({"network": {"classID": 1}})),
        ("/linux/resources", json!({"memory": {"disableOOMKiller": true}})),
        ("/linux/namespaces", json!([{"type": "time"}])),
        ("/linux/seccomp", json!({"defaultAction": "SCMP_ACT_NOTIFY"})),
        ("/linux/seccomp", json!({"defaultAction": "SCMP_ACT_ERRNO", "flags": ["SECCOMP_FILTER_FLAG_LOG"]})),
        ("/linux/seccomp", json!({"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_MIPS"]})),
        ("/linux/rootfsPropagation", json!("wide")),
        ("/mounts", json!([{"destination": "/sys/fs/cgroup", "type": "cgroup"}])),
        ("/mounts", json!([{"destination": "/a", "source": "/b", "type": "bind", "options": ["idmap"]}])),
        ("/hooks", json!({"prestart": [{"path": "/bin/true"}]})),
        ("/ociVersion", json!("invalid")),
    ];
    for (pointer, value) in cases {
        let told = refusal(pointer, value);
        let words = pointer.trim_start_matches('/').replace('/', ".");
        assert!(told.contains(&words), "{pointer}: {told}");
    }
}

#[test]
fn what_asks_for_nothing_is_no_obstacle() {
    read_value(&with("/hooks", json!({"prestart": []}))).unwrap();
    read_value(&with("/process/terminal", json!(false))).unwrap();
    // The specification wants it so.
    read_value(&with("/surprise", json!({"a": 1}))).unwrap();
}

#[test]
fn wrong_types_are_told_with_their_path() {
    assert!(refusal("/process/args", json!("true")).contains("process.args must be a list"));
    assert!(refusal("/process/user", json!({"uid": -1})).contains("process.user.uid"));
    assert!(refusal("/process/user", json!({"uid": 1_u64 << 32})).contains("process.user.uid"));
    assert!(refusal("/process/capabilities", json!({"bounding": ["CAP_ALL"]})).contains("CAP_ALL"));
    let twice =
        json!([{"type": "RLIMIT_CPU", "soft": 1, "hard": 1}, {"type": "RLIMIT_CPU", "soft": 2, "hard": 2}]);
    assert!(refusal("/process/rlimits", twice).contains("twice"));
    for text in ["", "[]", "{", "null"] {
        assert!(read(text, Path::new("/"), "c").is_err(), "{text}");
    }
}

#[test]
fn capabilities_are_the_kernels_bits() {
    let sets = json!({"bounding": ["CAP_CHOWN", "CAP_CHECKPOINT_RESTORE"], "effective": ["CAP_SYS_ADMIN"]});
    let process = read_value(&with("/process/capabilities", sets)).unwrap().bundle.process.unwrap();
    assert_eq!((process.bounding, process.capabilities.effective), (1 | 1 << 40, 1 << 21));
}

#[test]
fn options_of_mounts_are_flags_or_the_file_systems() {
    let mount = |options: &[&str], kind: &str| {
        let mount = json!([{"destination": "tmp", "type": kind, "source": "usr", "options": options}]);
        read_value(&with("/mounts", mount)).unwrap().bundle.mounts.remove(0)
    };
    let tmp = mount(&["nosuid", "strictatime", "mode=755", "size=65536k", "rw"], "tmpfs");
    assert_eq!(tmp.destination, Path::new("/tmp"));
    assert_eq!(tmp.flags.set, MountFlags::NO_SETUID | MountFlags::STRICT_ACCESS_TIMES);
    let MountSource::New { options, .. } = tmp.source else { panic!("a new file system") };
    assert_eq!(options, [("mode".to_owned(), "755".to_owned()), ("size".to_owned(), "65536k".to_owned())]);
    let bind = mount(&["rbind", "rro", "rslave", "ro", "rw"], "none");
    assert_eq!((bind.flags.set, bind.flags.clear), (0, MountFlags::READ_ONLY));
    assert_eq!(
        (bind.flags_below.set, bind.propagation),
        (MountFlags::READ_ONLY, Some((Propagation::Slave, true)))
    );
    let MountSource::Bind { path, is_recursive: true } = bind.source else { panic!("a recursive bind") };
    assert_eq!(path, Path::new("/usr"));
}

#[test]
fn unknown_calls_are_left_to_a_stricter_default_only() {
    let profile = |default: &str, action: &str| json!({"defaultAction": default, "syscalls": [{"names": ["no_such_call"], "action": action}]});
    read_value(&with("/linux/seccomp", profile("SCMP_ACT_ERRNO", "SCMP_ACT_ALLOW"))).unwrap();
    read_value(&with("/linux/seccomp", profile("SCMP_ACT_ALLOW", "SCMP_ACT_ALLOW"))).unwrap();
    assert!(refusal("/linux/seccomp", profile("SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO")).contains("no_such_call"));
}
