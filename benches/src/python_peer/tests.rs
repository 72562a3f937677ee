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
