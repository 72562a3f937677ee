// SPDX-License-Identifier: Apache-2.0
//! Where traces go, by the variables that all of OpenTelemetry's programs know.

use std::collections::BTreeMap;

use node::Traces;

use crate::exit::{Code, Stop};

/// What follows the address of a collector that takes all signals.
const TRACES_PATH: &str = "v1/traces";

/// The collector that the environment names; `None` if it names none. `variable`
/// tells a variable's value.
pub(super) fn traces(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Traces>, Stop> {
    let value = |name: &str| variable(name).filter(|value| !value.is_empty());
    // One for traces alone wins over one for all signals.
    let either = |name: &str| {
        value(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| value(&format!("OTEL_EXPORTER_OTLP_{name}")))
    };
    let is_off = value("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || value("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    let url = value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| {
        let base = value("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        Some(format!("{}/{TRACES_PATH}", base.trim_end_matches('/')))
    });
    let Some(url) = url.filter(|_| !is_off) else { return Ok(None) };
    if let Some(protocol) = either("PROTOCOL").filter(|protocol| protocol == "grpc") {
        let stop = Stop::new(
            Code::Usage,
            format!("OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, which a node does not speak"),
        );
        return Err(stop
            .suggest("name the collector's HTTP port, as in http://localhost:4318, and unset the protocol"));
    }
    let headers = pairs("OTEL_EXPORTER_OTLP_HEADERS", either("HEADERS").as_deref().unwrap_or_default())?;
    let attributes = value("OTEL_RESOURCE_ATTRIBUTES");
    let mut resource = pairs("OTEL_RESOURCE_ATTRIBUTES", attributes.as_deref().unwrap_or_default())?;
    resource.extend(value("OTEL_SERVICE_NAME").map(|name| ("service.name".to_owned(), name)));
    let ratio = ratio(value("OTEL_TRACES_SAMPLER").as_deref(), value("OTEL_TRACES_SAMPLER_ARG").as_deref())?;
    Ok(Some(Traces { url, headers, resource, ratio }))
}

/// Of the requests that bring no trace, the part that is told.
fn ratio(sampler: Option<&str>, argument: Option<&str>) -> Result<f64, Stop> {
    match sampler {
        None | Some("always_on" | "parentbased_always_on") => Ok(1.0),
        Some("always_off" | "parentbased_always_off") => Ok(0.0),
        Some("traceidratio" | "parentbased_traceidratio") => {
            let ratio = argument.map_or(Ok(1.0), str::parse).ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            ratio.ok_or_else(|| Stop::new(Code::Usage, "OTEL_TRACES_SAMPLER_ARG is a number from 0 to 1"))
        }
        Some(other) => {
            let stop = Stop::new(
                Code::Usage,
                format!("OTEL_TRACES_SAMPLER is {other:?}, which is none that a node knows"),
            );
            Err(stop.suggest("parentbased_always_on, parentbased_traceidratio or parentbased_always_off"))
        }
    }
}

/// `name=value,name=value`, with values as in URLs.
fn pairs(variable: &str, text: &str) -> Result<BTreeMap<String, String>, Stop> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_owned(), unescaped(value.trim())?))
    };
    let pairs = text.split(',').filter(|text| !text.trim().is_empty()).map(pair).collect::<Option<_>>();
    // What stands there may be a key.
    pairs.ok_or_else(|| Stop::new(Code::Usage, format!("{variable} is written name=value,name=value")))
}

/// A text in which bytes may be written as `%41`.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = if first == b'%' { Some(after.get(..2)?) } else { None };
        bytes.push(match digits {
            Some(digits) => u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?,
            None => first,
        });
        rest = if digits.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn told(variables: &[(&str, &str)]) -> Result<Option<Traces>, Stop> {
        traces(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_variables_of_opentelemetry_say_where_traces_go() {
        assert_eq!(told(&[]).unwrap(), None);
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/");
        let traces = told(&[
            base,
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, y=1"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.name=other"),
            ("OTEL_SERVICE_NAME", "shop"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let Traces { url, headers, resource, ratio } = traces.unwrap().unwrap();
        assert_eq!((url.as_str(), ratio), ("http://localhost:4318/v1/traces", 0.25));
        assert_eq!((headers["x-key"].as_str(), headers["y"].as_str()), ("a b", "1"));
        assert_eq!(resource["service.name"], "shop");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces.example.com/in");
        assert_eq!(told(&[base, own]).unwrap().unwrap().url, "https://traces.example.com/in");
        for off in [
            ("OTEL_SDK_DISABLED", "true"),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
        ] {
            assert_eq!(told(&[off, base][..if off.1.is_empty() { 1 } else { 2 }]).unwrap(), None, "{off:?}");
        }
    }

    #[test]
    fn what_a_node_cannot_do_is_said_and_no_secret_with_it() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "key=%s3cret"),
        ] {
            let stop = told(&[base, (name, value)]).unwrap_err();
            assert!(stop.message.contains(name) && !stop.message.contains("s3cret"), "{}", stop.message);
        }
        let ratio = [base, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        assert!(told(&ratio).is_err());
    }
}
