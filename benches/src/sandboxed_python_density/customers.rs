// SPDX-License-Identifier: Apache-2.0
//! A hundred customers of CPython: each has pandas, modules of its own, and a table of
//! its own in memory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

pub(super) const CUSTOMERS: usize = 100;

/// What all of them have, and one run of what they will do.
pub(super) const COMMON: &str = "import numpy, pandas\n\
    _ = pandas.DataFrame({'k': list('abcab'), 'v': [1, 2, 3, 4, 5]}).groupby('k').v.sum().to_dict()\n";

/// Each has another three of these.
const MODULES: [&str; 12] = [
    "json",
    "csv",
    "decimal",
    "fractions",
    "statistics",
    "html.parser",
    "xml.etree.ElementTree",
    "configparser",
    "difflib",
    "ipaddress",
    "calendar",
    "textwrap",
];

/// What one imports, loads and defines besides, and one run of it.
pub(super) fn own(customer: usize, data: &Path) -> String {
    let module = |nth: usize| MODULES[(customer * nth + customer / 7 + nth) % MODULES.len()];
    format!(
        "import {}, {}, {}\n\
         orders = pandas.read_csv({:?})\n\
         def answer(number):\n\
         \x20   return int(orders.groupby('k').v.sum().iloc[number % 5]) + number\n\
         _ = answer(0)\n",
        module(1),
        module(5),
        module(7),
        data.join(format!("orders-{customer:02}.csv")),
    )
}

/// What it is asked, and what it has to print.
pub(super) fn question(customer: usize, number: u64) -> (String, String) {
    let of_key = |(key, value): (u64, u64)| (key == number % 5).then_some(value);
    let sum: u64 = rows(customer).filter_map(of_key).sum();
    (format!("print(answer({number}))"), format!("{}\n", sum + number))
}

/// A key from 0 to 4 and a value each.
fn rows(customer: usize) -> impl Iterator<Item = (u64, u64)> {
    let customer = customer as u64;
    (0..500 + customer * 13).map(move |row| ((row * 7 + row / 11) % 5, (row * (customer + 3)) % 1009))
}

/// Their tables.
pub(super) fn data(folder: &Path) -> anyhow::Result<PathBuf> {
    let data = folder.join("customers");
    std::fs::create_dir_all(&data)?;
    for customer in 0..CUSTOMERS {
        let mut text = "k,v\n".to_owned();
        for (key, value) in rows(customer) {
            writeln!(text, "{},{value}", ["a", "b", "c", "d", "e"][key as usize])?;
        }
        std::fs::write(data.join(format!("orders-{customer:02}.csv")), text)?;
    }
    Ok(data)
}
