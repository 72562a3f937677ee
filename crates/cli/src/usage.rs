// SPDX-License-Identifier: Apache-2.0
//! What requests took, and their price, in words. The node measured it.

use std::time::Duration;

use serde_json::Value;

use crate::quantity::{human_bytes, human_time};

/// Digits of a price that mean something.
const PRICE_DIGITS: usize = 3;
const PRICE_DECIMALS_MAX: usize = 12;

/// How one request went: where its time went, what it used, what it costs.
pub(crate) fn breakdown(record: &Value) -> Vec<String> {
    let usage = &record["usage"];
    let time = |value: &Value| human_time(micros(value));
    let mut times = vec![];
    for (member, what) in [("queued_us", "waited for its turn"), ("starting_us", "waited for an instance")] {
        if record[member].as_u64().is_some_and(|us| us > 0) {
            times.push(format!("{} {what}", time(&record[member])));
        }
    }
    if usage["running_us"].as_u64().is_some_and(|us| us > 0) {
        times.push(format!("{} ran", time(&usage["running_us"])));
    }
    if usage["waiting_us"].as_u64().is_some_and(|us| us > 0) {
        times.push(format!("{} of that waited for other functions", time(&usage["waiting_us"])));
    }
    times.push(format!("{} in all", time(&record["total_us"])));
    let start = record["start"].as_str().unwrap_or("-");
    let mut lines = vec![format!("{start}: {}", times.join(", "))];
    lines.push(used(usage));
    lines.extend(price(usage, record).map(|price| format!("price {price}")));
    lines
}

/// What ran for an evaluation, and its price.
pub(crate) fn evaluation(answer: &Value) -> String {
    let cost = &answer["cost"];
    let number = |name: &str| cost[name].as_u64().unwrap_or(0);
    let mut parts = vec![
        format!("{} of inputs", human_bytes(number("inputs_bytes"))),
        format!("{} reserved", human_bytes(number("reserved_bytes"))),
        format!("{} fuel", crate::quantity::grouped(number("fuel"))),
    ];
    if let Some(us) = cost["cpu_us"].as_f64().filter(|us| *us > 0.0) {
        parts.push(format!("processor {}", human_time(Duration::from_secs_f64(us / 1e6))));
    }
    parts.extend(answer["price"].as_f64().map(|price| format!("price {}", money(price, currency(answer)))));
    parts.join(", ")
}

/// The sums over a request and all that it led to.
pub(crate) fn sums(records: &[Value]) -> Vec<(String, String)> {
    let sum = |member: &str| -> Option<u64> {
        let known = records.iter().filter_map(|record| record["usage"][member].as_u64());
        known.reduce(u64::saturating_add)
    };
    let calls = match records.len() {
        1 => String::new(),
        calls => format!(" in {calls} calls"),
    };
    let mut lines = Vec::new();
    if let Some(cpu) = sum("cpu_us") {
        lines.push(("processor".to_owned(), human_time(Duration::from_micros(cpu)) + &calls));
    }
    if let Some(held) = sum("held_us") {
        let held = human_time(Duration::from_micros(held));
        lines.push(("held".to_owned(), format!("{held}, without waiting for one another")));
    }
    let peak = records.iter().filter_map(|record| record["usage"]["memory_peak_bytes"].as_u64()).max();
    if let Some(peak) = peak {
        lines.push(("memory".to_owned(), format!("{} at most in an instance", human_bytes(peak))));
    }
    let prices = records.iter().filter_map(|record| record["usage"]["price"].as_f64());
    if let (Some(price), Some(first)) = (prices.reduce(|sum, price| sum + price), records.first()) {
        lines.push(("price".to_owned(), money(price, currency(first))));
    }
    lines
}

/// Processor, memory, bytes.
fn used(usage: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(cpu) = usage["cpu_us"].as_u64() {
        let share = if usage["cpu_is"] == "share" { " (its share)" } else { "" };
        parts.push(format!("processor {}{share}", human_time(Duration::from_micros(cpu))));
    }
    if let Some(fuel) = usage["fuel"].as_u64() {
        parts.push(format!("fuel {}", crate::quantity::grouped(fuel)));
    }
    let most = usage["memory_bytes"].as_u64().map(human_bytes).unwrap_or_default();
    match usage["memory_peak_bytes"].as_u64() {
        Some(peak) => parts.push(format!("memory of the instance {} of {most}", human_bytes(peak))),
        None => parts.push(format!("memory up to {most}")),
    }
    for (member, what) in [("received_bytes", "received"), ("sent_bytes", "sent")] {
        parts.push(format!("{} {what}", human_bytes(usage[member].as_u64().unwrap_or(0))));
    }
    parts.join(", ")
}

fn price(usage: &Value, record: &Value) -> Option<String> {
    usage["price"].as_f64().map(|price| money(price, currency(record)))
}

/// In what prices of an answer are.
pub(crate) fn currency(answer: &Value) -> &str {
    answer["currency"].as_str().unwrap_or_default()
}

/// A price with three digits that mean something, however small it is.
pub(crate) fn money(price: f64, currency: &str) -> String {
    let zeros = if price > 0.0 && price < 1.0 { (-price.log10()).floor() as usize } else { 0 };
    let decimals = (zeros + PRICE_DIGITS).min(PRICE_DECIMALS_MAX);
    format!("{price:.decimals$} {currency}").trim_end().to_owned()
}

fn micros(value: &Value) -> Duration {
    Duration::from_micros(value.as_u64().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_broken_down_into_time_use_and_price() {
        let record = json!({
            "start": "forked", "total_us": 17_200, "queued_us": 100, "starting_us": 3_200, "currency": "EUR",
            "usage": {
                "running_us": 12_000, "waiting_us": 3_100, "held_us": 8_900, "cpu_us": 8_100, "cpu_is": "share",
                "memory_bytes": 256 << 20, "memory_peak_bytes": 24 << 20, "received_bytes": 12,
                "sent_bytes": 30, "price": 0.000_001_234_5,
            },
        });
        assert_eq!(
            breakdown(&record),
            [
                "forked: 100 µs waited for its turn, 3.20 ms waited for an instance, 12.0 ms ran, \
                 3.10 ms of that waited for other functions, 17.2 ms in all",
                "processor 8.10 ms (its share), memory of the instance 24.0 MiB of 256.0 MiB, 12 B received, \
                 30 B sent",
                "price 0.00000123 EUR",
            ]
        );
        let memo =
            json!({"start": "memo", "total_us": 90, "usage": {"memory_bytes": 1 << 20, "sent_bytes": 3}});
        assert_eq!(
            breakdown(&memo),
            ["memo: 90.0 µs in all", "memory up to 1.0 MiB, 0 B received, 3 B sent"]
        );
    }

    #[test]
    fn an_evaluation_has_a_cost_and_a_price_where_there_are_rates() {
        let cost = json!({"inputs_bytes": 2048, "reserved_bytes": 1 << 20, "fuel": 12_345, "cpu_us": 0.0});
        assert_eq!(
            evaluation(&json!({"cost": cost, "price": 0.5, "currency": "EUR"})),
            "2.0 KiB of inputs, 1.0 MiB reserved, 12,345 fuel, price 0.500 EUR"
        );
        let uncounted = json!({"inputs_bytes": 0, "reserved_bytes": 0, "fuel": 0, "cpu_us": 1500.0});
        assert_eq!(
            evaluation(&json!({"cost": uncounted})),
            "0 B of inputs, 0 B reserved, 0 fuel, processor 1.50 ms"
        );
    }

    #[test]
    fn a_tree_of_calls_is_summed_up() {
        let call = |cpu_us: u64, price: f64| json!({"currency": "EUR", "usage": {"cpu_us": cpu_us, "held_us": 10, "memory_peak_bytes": cpu_us, "price": price}});
        let told = sums(&[call(1_000, 0.5), call(2_500, 0.25), json!({})]);
        let told: Vec<(&str, &str)> =
            told.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            told,
            [
                ("processor", "3.50 ms in 3 calls"),
                ("held", "20.0 µs, without waiting for one another"),
                ("memory", "2.4 KiB at most in an instance"),
                ("price", "0.750 EUR"),
            ]
        );
        assert!(sums(&[json!({})]).is_empty(), "nothing is known of what nobody counts");
    }

    #[test]
    fn small_prices_keep_their_digits() {
        for (price, told) in
            [(0.0, "0.000 EUR"), (12.5, "12.500 EUR"), (0.05, "0.0500 EUR"), (2.5e-10, "0.000000000250 EUR")]
        {
            assert_eq!(money(price, "EUR"), told);
        }
        assert_eq!(money(1.0, ""), "1.000");
    }
}
