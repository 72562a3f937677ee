// SPDX-License-Identifier: Apache-2.0
//! Who a node is: a pair of ed25519 keys. What it signs, anybody can check who knows
//! the public one.
//!
//! What is signed says itself what it is in its first bytes, so that a signature
//! over one kind of statement is none over another.

use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

/// Bytes of the secret, from which the pair follows.
pub const SEED_LEN: usize = 32;

/// A node's pair of keys.
pub struct Identity(Ed25519KeyPair);

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({:02x?}…)", &self.public_key()[..4])
    }
}

impl Identity {
    /// A new secret; `None` if the system has no randomness.
    pub fn seed() -> Option<[u8; SEED_LEN]> {
        let mut seed = [0; SEED_LEN];
        SystemRandom::new().fill(&mut seed).ok().map(|()| seed)
    }

    /// The pair that follows from a secret; `None` if it is none, as it never is.
    pub fn new(seed: &[u8; SEED_LEN]) -> Option<Self> {
        Ed25519KeyPair::from_seed_unchecked(seed).ok().map(Self)
    }

    /// What others know it by.
    pub fn public_key(&self) -> [u8; 32] {
        let key = self.0.public_key().as_ref();
        key.try_into().unwrap_or_else(|_| unreachable!("a public key of ed25519 has 32 bytes"))
    }

    /// A signature over a message that says what it is.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let signature = self.0.sign(message);
        signature.as_ref().try_into().unwrap_or_else(|_| unreachable!("a signature has 64 bytes"))
    }
}

/// Whether the signature over the message is by whoever has this public key.
pub fn is_signed_by(public_key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ED25519, public_key).verify(message, signature).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let bytes: Vec<u8> =
            (0..N).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect();
        bytes.try_into().unwrap()
    }

    /// RFC 8032, section 7.1, test 2.
    #[test]
    fn the_example_of_the_standard_has_its_signature() {
        let seed = hex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
        let identity = Identity::new(&seed).unwrap();
        let public = hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        assert_eq!(identity.public_key(), public);
        let signature = hex::<64>(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        );
        assert_eq!(identity.sign(&[0x72]), signature);
        assert!(is_signed_by(&public, &[0x72], &signature));
    }

    #[test]
    fn another_message_key_or_signature_is_not_signed() {
        let [one, other] = [1, 2].map(|seed| Identity::new(&[seed; SEED_LEN]).unwrap());
        let signature = one.sign(b"this");
        assert!(is_signed_by(&one.public_key(), b"this", &signature));
        assert!(!is_signed_by(&one.public_key(), b"that", &signature));
        assert!(!is_signed_by(&other.public_key(), b"this", &signature));
        for at in 0..64 {
            let mut changed = signature;
            changed[at] ^= 1;
            assert!(!is_signed_by(&one.public_key(), b"this", &changed), "byte {at}");
        }
        assert!(!is_signed_by(&[0; 32], b"this", &[0; 64]));
        assert_ne!(Identity::seed().unwrap(), Identity::seed().unwrap());
        assert!(!format!("{one:?}").contains("01, 01, 01"), "the secret is not told");
    }
}
