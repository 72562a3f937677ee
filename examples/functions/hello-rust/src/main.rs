// SPDX-License-Identifier: Apache-2.0
//! A function: what it prints is the answer to the body that it reads.

use std::io::{Read, Write};

fn main() -> std::io::Result<()> {
    let mut body = String::new();
    std::io::stdin().read_to_string(&mut body)?;
    let name = if body.trim().is_empty() { "world" } else { body.trim() };
    let greeting = std::env::var("GREETING").unwrap_or_else(|_| "Hello".to_owned());
    let request = std::env::var("SINEW_REQUEST_ID").unwrap_or_default();
    eprintln!("greeting {name} for request {request}");
    writeln!(std::io::stdout(), "{greeting}, {name}!")
}
