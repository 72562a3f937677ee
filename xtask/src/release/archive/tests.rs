// SPDX-License-Identifier: Apache-2.0
//! What is in the archive.

#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn the_same_files_make_the_same_archive_whose_hash_lies_beside_it() {
    let folder = layout::target().join(format!("archive-test-{}", std::process::id()));
    layout::remove(&folder).unwrap();
    fs::create_dir_all(&folder).unwrap();
    let binary = folder.join("built");
    let mut made = Vec::new();
    for age in ["2001-01-01", "2020-02-02"] {
        fs::write(&binary, "a program").unwrap();
        process::run(process::command("chmod").arg("755").arg(&binary)).unwrap();
        process::run(process::command("touch").args(["-d", age]).arg(&binary)).unwrap();
        let archive = make(&binary, "thanks", &folder).unwrap();
        let name = archive.file_name().unwrap().to_str().unwrap().to_owned();
        process::run(
            process::command("sha256sum")
                .current_dir(&folder)
                .args(["--check", "--quiet"])
                .arg(name + ".sha256"),
        )
        .unwrap();
        made.push(fs::read(&archive).unwrap());
        let listed = process::output(process::command("tar").args(["-tvzf"]).arg(&archive)).unwrap();
        let lines: Vec<_> = listed.lines().collect();
        assert_eq!(lines.len(), 6, "{listed}");
        let [folder, licence, notices, security, program, unit] = lines[..] else { panic!("{listed}") };
        for (line, end) in [
            (folder, "/"),
            (licence, "/LICENSE"),
            (notices, "/NOTICES.txt"),
            (security, "/SECURITY.md"),
            (program, "/sinew"),
            (unit, "/sinew.service"),
        ] {
            assert!(line.ends_with(end) && line.contains(" 0/0 "), "{line}");
        }
        assert!(program.starts_with("-rwxr-xr-x"), "{program}");
        assert!(licence.starts_with("-rw-r--r--"), "{licence}");
    }
    assert!(made[0] == made[1], "two archives of the same files differ");
    layout::remove(&folder).unwrap();
}
