// SPDX-License-Identifier: Apache-2.0
//! Signatures of what is sent to others, as Standard Webhooks has them: HMAC with
//! SHA-256 over the message's id, the time, and the body.
//!
//! While a secret is being replaced there are two, and a signature by each: the
//! receiver may know either.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use ring::hmac;

/// What the text of a secret begins with.
const PREFIX: &str = "whsec_";
/// Bytes of a secret, at least and at most.
const SECRET_LEN_MIN: usize = 24;
const SECRET_LEN_MAX: usize = 64;
/// Secrets at one time.
const SECRETS_MAX: usize = 4;

/// Signs with one secret, or with several.
pub struct Signer(Vec<hmac::Key>);

impl Signer {
    /// From the texts of secrets, with blanks between them.
    ///
    /// # Errors
    /// Why they are none, for people; nothing of them is told.
    pub fn read(text: &str) -> Result<Self, String> {
        let keys: Option<Vec<hmac::Key>> = text.split_whitespace().map(key).collect();
        let keys = keys.filter(|keys| (1..=SECRETS_MAX).contains(&keys.len()));
        keys.map(Self).ok_or_else(|| {
            format!(
                "a secret for signing is {PREFIX} and base64 of {SECRET_LEN_MIN} to {SECRET_LEN_MAX} random bytes, \
                 as echo {PREFIX}$(openssl rand -base64 32) makes one; while it is replaced, two of them with a blank between"
            )
        })
    }

    /// The value of `webhook-signature` for a message.
    pub fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let signatures = self.0.iter().map(|key| {
            let mut context = hmac::Context::with_key(key);
            context.update(format!("{id}.{timestamp_s}.").as_bytes());
            context.update(body);
            format!("v1,{}", BASE64.encode(context.sign()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({} secrets)", self.0.len())
    }
}

fn key(text: &str) -> Option<hmac::Key> {
    let bytes = BASE64.decode(text.strip_prefix(PREFIX)?).ok()?;
    let is_long_enough = (SECRET_LEN_MIN..=SECRET_LEN_MAX).contains(&bytes.len());
    is_long_enough.then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn the_example_of_the_specification_has_its_signature() {
        let signer = Signer::read(SECRET).unwrap();
        let signature =
            signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_ne!(
            signature,
            signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_331, br#"{"test": 2432232314}"#)
        );
    }

    #[test]
    fn two_secrets_give_two_signatures_and_what_is_none_is_refused_and_not_told() {
        let other = format!("whsec_{}", BASE64.encode([7; 32]));
        let both = Signer::read(&format!("{other} {SECRET}\n")).unwrap().sign("a", 1, b"");
        let each = [&other, SECRET].map(|secret| Signer::read(secret).unwrap().sign("a", 1, b""));
        assert_eq!(both, each.join(" "));
        for wrong in [
            "",
            "whsec_",
            "whsec_c2hvcnQ=",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_%%%",
            &[SECRET; 5].join(" "),
        ] {
            let why = Signer::read(wrong).unwrap_err();
            assert!(
                why.contains("openssl rand") && !why.contains("MfKQ9r8G") && !why.contains("c2hvcnQ"),
                "{why}"
            );
        }
    }
}
