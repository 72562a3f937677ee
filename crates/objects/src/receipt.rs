// SPDX-License-Identifier: Apache-2.0
//! Receipts: which goal led to which result, on which node, at what cost.
//!
//! A receipt is a *statement* of fixed length, the node's ed25519 signature over
//! exactly those bytes, and one record for each application that the whole
//! computation came to, in order of their names; the statement has their hash.
//! Sums and hash are checked while it is read, so that a [`Receipt`] is in itself
//! consistent; whether the signature is the node's is told by whoever has the
//! cryptography. Normative: `docs/spec/receipts.md`.

use crate::{Error, Handle, Kind};

/// What the signed bytes begin with. Nothing else that a node signs begins so.
pub const RECEIPT_MAGIC: [u8; 16] = *b"sinew receipt 1\n";
/// Bytes that are signed.
pub const STATEMENT_LEN: usize = 288;
/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;
/// Bytes of one application's record.
pub const STEP_LEN: usize = 96;
/// Applications of one receipt.
pub const RECEIPT_STEPS_MAX: usize = 1 << 17;
/// Where no price was told.
const NO_PRICE: u64 = u64::MAX;
const CURRENCY_LEN: usize = 16;
/// The context of the hash over all records.
const STEPS_CONTEXT: &str = "sinew 2026 receipt steps";

const FRESH: u64 = 1;
const RAN_NOW: u64 = 1;
const IS_COUNTED: u64 = 2;

/// What applications cost, whoever runs them and wherever: it follows from what
/// they are, not from how long a node took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes of inputs, up front: the minimum repositories, each object once for
    /// each entry of the application that it is in.
    pub inputs_bytes: u64,
    /// Bytes of memory that were reserved, up front.
    pub reserved_bytes: u64,
    /// Instructions at run time, of those applications that set a limit of fuel.
    pub fuel: u64,
    /// Applications that set none, and so have no cost of instructions.
    pub uncounted: u64,
}

impl Cost {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            inputs_bytes: self.inputs_bytes.saturating_add(other.inputs_bytes),
            reserved_bytes: self.reserved_bytes.saturating_add(other.reserved_bytes),
            fuel: self.fuel.saturating_add(other.fuel),
            uncounted: self.uncounted.saturating_add(other.uncounted),
        }
    }
}

/// One application of a computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptStep {
    /// The application's thunk, its encodes replaced.
    pub application: Handle,
    /// What its procedure returned: a value, a thunk or an encode.
    pub result: Handle,
    /// [`Cost::inputs_bytes`].
    pub inputs_bytes: u64,
    /// [`Cost::reserved_bytes`].
    pub reserved_bytes: u64,
    /// Instructions; 0 where they were not counted.
    pub fuel: u64,
    /// It ran for this request. Otherwise it ran before, or for another one, and was
    /// remembered with what it cost then.
    pub ran_now: bool,
    /// It set a limit of fuel.
    pub is_counted: bool,
}

impl ReceiptStep {
    /// What it costs, or cost when it ran.
    pub fn cost(&self) -> Cost {
        Cost {
            inputs_bytes: self.inputs_bytes,
            reserved_bytes: self.reserved_bytes,
            fuel: self.fuel,
            uncounted: u64::from(!self.is_counted),
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.application.as_bytes());
        bytes.extend(self.result.as_bytes());
        let flags = u64::from(self.ran_now) * RAN_NOW + u64::from(self.is_counted) * IS_COUNTED;
        for number in [self.inputs_bytes, self.reserved_bytes, self.fuel, flags] {
            bytes.extend(number.to_le_bytes());
        }
    }

    fn read(bytes: &[u8; STEP_LEN]) -> Result<Self, Error> {
        let mut fields = Fields(bytes);
        let (application, result) = (fields.handle()?, fields.handle()?);
        if application.kind() != Kind::Application {
            return Err(Error::BadReceipt("a record names something else than an application"));
        }
        let [inputs_bytes, reserved_bytes, fuel, flags] = fields.numbers()?;
        if flags & !(RAN_NOW | IS_COUNTED) != 0 {
            return Err(Error::BadReceipt("a record has unknown flags"));
        }
        let (ran_now, is_counted) = (flags & RAN_NOW != 0, flags & IS_COUNTED != 0);
        if fuel != 0 && !is_counted {
            return Err(Error::BadReceipt("a record has fuel that nobody counted"));
        }
        Ok(Self { application, result, inputs_bytes, reserved_bytes, fuel, ran_now, is_counted })
    }
}

/// What a node says of a price, by its own rates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Price {
    /// In 10⁻¹² of the currency; `None` where the node has no rates.
    pub amount: Option<u64>,
    /// What is left of the whole for a request that may wait, in millionths.
    pub factor_ppm: u64,
    /// At most 16 bytes, none of them zero.
    pub currency: String,
}

/// What a node signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// What was asked for: an encode, or a value.
    pub goal: Handle,
    /// What it led to: a value, perhaps a failure.
    pub result: Handle,
    /// The node's public key, which is its name.
    pub node: [u8; 32],
    /// Of all records; see [`steps_hash`].
    pub steps_hash: [u8; 32],
    /// When it was signed by the node's clock, in milliseconds since 1970.
    pub issued_ms: u64,
    /// Nothing that was remembered has been used.
    pub is_fresh: bool,
    /// Applications of the whole computation: as many as there are records.
    pub applications: u64,
    /// Those of them that ran now.
    pub ran: u64,
    /// The cost of all.
    pub whole: Cost,
    /// The cost of those that ran now.
    pub now: Cost,
    /// Wall time in nanoseconds of those that ran now and count no fuel. The node's word,
    /// which nobody can check.
    pub uncounted_nanos: u64,
    /// In how many milliseconds the result was wanted; 0: at once.
    pub by_ms: u64,
    /// What it costs.
    pub price: Price,
}

impl Statement {
    /// The bytes that are signed.
    pub fn to_bytes(&self) -> [u8; STATEMENT_LEN] {
        let mut bytes = Vec::with_capacity(STATEMENT_LEN);
        bytes.extend(RECEIPT_MAGIC);
        for part in [self.goal.as_bytes(), self.result.as_bytes(), &self.node, &self.steps_hash] {
            bytes.extend(part);
        }
        let flags = u64::from(self.is_fresh) * FRESH;
        let cost = |cost: &Cost| [cost.inputs_bytes, cost.reserved_bytes, cost.fuel, cost.uncounted];
        let (whole, now) = (cost(&self.whole), cost(&self.now));
        let rest =
            [self.uncounted_nanos, self.by_ms, self.price.amount.unwrap_or(NO_PRICE), self.price.factor_ppm];
        let numbers = [self.issued_ms, flags, self.applications, self.ran];
        for number in numbers.into_iter().chain(whole).chain(now).chain(rest) {
            bytes.extend(number.to_le_bytes());
        }
        let mut currency = [0; CURRENCY_LEN];
        let text = self.price.currency.as_bytes();
        let len = text.len().min(CURRENCY_LEN);
        currency[..len].copy_from_slice(&text[..len]);
        bytes.extend(currency);
        bytes.try_into().unwrap_or_else(|_| unreachable!("all fields have fixed lengths"))
    }

    /// Reads what [`Statement::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::BadReceipt`] unless some statement has exactly these bytes.
    pub fn from_bytes(bytes: &[u8; STATEMENT_LEN]) -> Result<Self, Error> {
        let mut fields = Fields(bytes);
        if fields.take::<16>()? != RECEIPT_MAGIC {
            return Err(Error::BadReceipt("it does not begin as one, or is of a later version"));
        }
        let (goal, result) = (fields.handle()?, fields.handle()?);
        let (node, steps_hash) = (fields.take()?, fields.take()?);
        let [issued_ms, flags, applications, ran] = fields.numbers()?;
        if flags & !FRESH != 0 {
            return Err(Error::BadReceipt("it has unknown flags"));
        }
        let (whole, now) = (fields.cost()?, fields.cost()?);
        let [uncounted_nanos, by_ms, amount, factor_ppm] = fields.numbers()?;
        let currency = currency_of(&fields.take()?)?;
        if !(goal.is_encode() || goal.is_value()) || !result.is_value() {
            return Err(Error::BadReceipt("its goal is no encode, or its result no value"));
        }
        let price = Price { amount: (amount != NO_PRICE).then_some(amount), factor_ppm, currency };
        Ok(Self {
            goal,
            result,
            node,
            steps_hash,
            issued_ms,
            is_fresh: flags & FRESH != 0,
            applications,
            ran,
            whole,
            now,
            uncounted_nanos,
            by_ms,
            price,
        })
    }
}

/// Text, and zeros up to the end.
fn currency_of(bytes: &[u8; CURRENCY_LEN]) -> Result<String, Error> {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(CURRENCY_LEN);
    let (text, rest) = bytes.split_at(len);
    let text = std::str::from_utf8(text).ok().filter(|text| !text.chars().any(char::is_control));
    match text {
        Some(text) if rest.iter().all(|&byte| byte == 0) => Ok(text.to_owned()),
        _ => Err(Error::BadReceipt("its currency is no text")),
    }
}

/// A statement with its signature, and what it sums up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// What is signed.
    pub statement: Statement,
    /// By whom [`Statement::node`] names, if it is his.
    pub signature: [u8; SIGNATURE_LEN],
    /// All applications, in order of their handles' bytes.
    pub steps: Vec<ReceiptStep>,
}

impl Receipt {
    /// The receipt's own bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATEMENT_LEN + SIGNATURE_LEN + self.steps.len() * STEP_LEN);
        bytes.extend(self.statement.to_bytes());
        bytes.extend(self.signature);
        self.steps.iter().for_each(|step| step.write(&mut bytes));
        bytes
    }

    /// Reads a receipt, and holds its sums against its records.
    ///
    /// # Errors
    /// [`Error::BadReceipt`] unless these are exactly the bytes of a receipt that is
    /// consistent in itself. The signature is not looked at.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let short = Error::BadReceipt("it ends early");
        let (statement, rest) = bytes.split_first_chunk::<STATEMENT_LEN>().ok_or(short.clone())?;
        let (signature, rest) = rest.split_first_chunk::<SIGNATURE_LEN>().ok_or(short.clone())?;
        let statement = Statement::from_bytes(statement)?;
        let (records, []) = rest.as_chunks::<STEP_LEN>() else { return Err(short) };
        if records.len() > RECEIPT_STEPS_MAX {
            return Err(Error::BadReceipt("it has too many records"));
        }
        let steps = records.iter().map(ReceiptStep::read).collect::<Result<Vec<_>, _>>()?;
        if !steps.is_sorted_by(|one, next| one.application.as_bytes() < next.application.as_bytes()) {
            return Err(Error::BadReceipt("its records are not in order, or one is there twice"));
        }
        let sums = Sums::of(&steps);
        let told = Sums {
            applications: statement.applications,
            ran: statement.ran,
            whole: statement.whole,
            now: statement.now,
        };
        if sums != told {
            return Err(Error::BadReceipt("its sums are not those of its records"));
        }
        if steps_hash(&steps) != statement.steps_hash {
            return Err(Error::BadReceipt("its records are not those that its statement is about"));
        }
        Ok(Self { statement, signature: *signature, steps })
    }
}

/// What a statement says of records, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// [`Statement::applications`].
    pub applications: u64,
    /// [`Statement::ran`].
    pub ran: u64,
    /// [`Statement::whole`].
    pub whole: Cost,
    /// [`Statement::now`].
    pub now: Cost,
}

impl Sums {
    /// Of these records.
    pub fn of(steps: &[ReceiptStep]) -> Self {
        steps.iter().fold(Self::default(), |sums, step| Self {
            applications: sums.applications + 1,
            ran: sums.ran + u64::from(step.ran_now),
            whole: sums.whole.plus(step.cost()),
            now: if step.ran_now { sums.now.plus(step.cost()) } else { sums.now },
        })
    }
}

/// BLAKE3 in its mode for deriving keys over all records, which are in order.
pub fn steps_hash(steps: &[ReceiptStep]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(STEPS_CONTEXT);
    let mut record = Vec::with_capacity(STEP_LEN);
    for step in steps {
        record.clear();
        step.write(&mut record);
        hasher.update(&record);
    }
    *hasher.finalize().as_bytes()
}

/// What is left of a record's bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Error::BadReceipt("it ends early"))?;
        self.0 = rest;
        Ok(*field)
    }

    fn handle(&mut self) -> Result<Handle, Error> {
        Handle::from_bytes(self.take()?)
    }

    fn numbers<const N: usize>(&mut self) -> Result<[u64; N], Error> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u64::from_le_bytes(self.take()?);
        }
        Ok(numbers)
    }

    fn cost(&mut self) -> Result<Cost, Error> {
        let [inputs_bytes, reserved_bytes, fuel, uncounted] = self.numbers()?;
        Ok(Cost { inputs_bytes, reserved_bytes, fuel, uncounted })
    }
}

#[cfg(test)]
mod tests;
