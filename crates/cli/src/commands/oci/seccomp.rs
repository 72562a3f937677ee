// SPDX-License-Identifier: Apache-2.0
//! `linux.seccomp`: a profile of system calls, made into a filter.

use anyhow::{Context as _, bail};
use node::bundle::{ArgumentTest, Comparison, ProfileAnswer, ProfileRule, SyscallFilter, call_number};

use super::fields::Fields;

#[cfg(target_arch = "x86_64")]
const OWN_ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const OWN_ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";
const EPERM: u16 = 1;

pub(super) fn read(mut fields: Fields) -> anyhow::Result<SyscallFilter> {
    let (action, errno) = (fields.string("defaultAction")?, fields.number("defaultErrnoRet")?);
    let otherwise = answer(&fields.required("defaultAction", action)?, errno)?;
    let architectures = fields.strings("architectures")?;
    if !architectures.is_empty() && !architectures.iter().any(|name| name == OWN_ARCHITECTURE) {
        bail!("linux.seccomp.architectures lacks {OWN_ARCHITECTURE}, this machine's own");
    }
    let mut rules = Vec::new();
    for rule in fields.objects("syscalls")? {
        read_rule(rule, otherwise, &mut rules)?;
    }
    fields.end(&["flags", "listenerPath", "listenerMetadata"])?;
    SyscallFilter::of_profile(&rules, otherwise).context("linux.seccomp")
}

fn answer(action: &str, errno: Option<u16>) -> anyhow::Result<ProfileAnswer> {
    Ok(match action {
        "SCMP_ACT_ALLOW" => ProfileAnswer::Allow,
        "SCMP_ACT_LOG" => ProfileAnswer::Log,
        "SCMP_ACT_ERRNO" => ProfileAnswer::Refuse(errno.unwrap_or(EPERM)),
        "SCMP_ACT_TRAP" => ProfileAnswer::Trap,
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => ProfileAnswer::EndThread,
        "SCMP_ACT_KILL_PROCESS" => ProfileAnswer::EndProcess,
        other => bail!("linux.seccomp: the action {other} cannot be honoured"),
    })
}

fn read_rule(
    mut fields: Fields,
    otherwise: ProfileAnswer,
    rules: &mut Vec<ProfileRule>,
) -> anyhow::Result<()> {
    let (names, action) = (fields.strings("names")?, fields.string("action")?);
    let errno = fields.number("errnoRet")?;
    let answer = answer(&fields.required("action", action)?, errno)?;
    let mut tests = Vec::new();
    for test in fields.objects("args")? {
        tests.push(read_test(test)?);
    }
    fields.end(&[])?;
    for name in names {
        let number = call_number(&name).and_then(|number| u32::try_from(number).ok());
        let Some(call) = number else {
            // A call that is not known here may be left to a stricter default,
            // but not to a laxer one.
            if is_lax(otherwise) && !is_lax(answer) {
                bail!("linux.seccomp: the call `{name}` is not known here, and would be allowed");
            }
            continue;
        };
        // Two conditions on one argument mean either.
        let is_either = tests.iter().enumerate().any(|(at, test): (usize, &ArgumentTest)| {
            tests[..at].iter().any(|other| other.index == test.index)
        });
        if is_either {
            rules.extend(tests.iter().map(|test| ProfileRule { call, all_of: vec![*test], answer }));
        } else {
            rules.push(ProfileRule { call, all_of: tests.clone(), answer });
        }
    }
    Ok(())
}

fn is_lax(answer: ProfileAnswer) -> bool {
    matches!(answer, ProfileAnswer::Allow | ProfileAnswer::Log)
}

fn read_test(mut fields: Fields) -> anyhow::Result<ArgumentTest> {
    let (index, value) = (fields.number("index")?, fields.number("value")?);
    let (second, operation) = (fields.number("valueTwo")?.unwrap_or(0), fields.string("op")?);
    let (index, mut value) = (fields.required("index", index)?, fields.required("value", value)?);
    let comparison = match fields.required("op", operation)?.as_str() {
        "SCMP_CMP_EQ" => Comparison::Equal,
        "SCMP_CMP_NE" => Comparison::NotEqual,
        "SCMP_CMP_LT" => Comparison::Less,
        "SCMP_CMP_LE" => Comparison::LessOrEqual,
        "SCMP_CMP_GT" => Comparison::Greater,
        "SCMP_CMP_GE" => Comparison::GreaterOrEqual,
        "SCMP_CMP_MASKED_EQ" => Comparison::MaskedEqual(std::mem::replace(&mut value, second)),
        other => bail!("linux.seccomp: there is no comparison {other}"),
    };
    fields.end(&[])?;
    Ok(ArgumentTest { index, comparison, value })
}
