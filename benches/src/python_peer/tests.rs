// SPDX-License-Identifier: Apache-2.0

use super::*;

#[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
fn python(script: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", script]);
    command
}

#[test]
fn a_peer_answers_lines_in_json_between_others() {
    let script = "print('starting'); print('{\"ready\": 1}', flush=True)\n\
                  print('{\"said\": \"' + input() + '\"}', flush=True)\ninput()";
    let (mut peer, ready) = Peer::start(&mut python(script)).unwrap();
    assert_eq!(ready["ready"], 1);
    assert_eq!(peer.ask("all").unwrap()["said"], "all");
}

#[test]
fn a_peer_that_ends_says_why() {
    let told = Peer::start(&mut python("raise SystemExit('no license')"));
    assert_eq!(told.err().unwrap().to_string(), "no license");
}

#[test]
fn a_peer_that_hangs_is_ended_with_what_it_forked() {
    let script = "import os, time\npid = os.fork()\nif pid: print('{\"forked\": %d}' % pid, flush=True)\ntime.sleep(60)";
    let (mut peer, told) = Peer::start_with(&mut python(script), Duration::from_millis(500)).unwrap();
    assert_eq!(peer.ask("anything").unwrap_err().to_string(), "it said nothing for 0 s");
    let forked = format!("/proc/{}/stat", told["forked"]);
    let begun = Instant::now();
    let is_alive = || std::fs::read_to_string(&forked).is_ok_and(|stat| !stat.contains(") Z "));
    while is_alive() {
        assert!(begun.elapsed() < Duration::from_secs(10), "what it forked goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}
