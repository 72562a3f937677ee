// SPDX-License-Identifier: Apache-2.0
//! Validation and classification of a module, before anything is compiled.
//!
//! Whatever a guest can change in its instance is one of: linear memory (and
//! its size), mutable globals, tables (and their sizes), and whether passive
//! segments were dropped. The class says how much of that there can be, from
//! the declarations and from a scan of every operator in the code section.

use wasmparser::{
    ExternalKind, FuncType, FuncValidatorAllocations, FunctionBody, Operator, Parser, Payload, TypeRef,
    ValType, ValidPayload, Validator,
};

use super::call::TABLE_ELEMENT_BYTES;
use super::engine::{FEATURES, PROGRAM_FEATURES, TABLE_ELEMENTS_MAX, TABLES_MAX};
use super::host::{IMPORTS, MEMORY, MODULE};
use super::wasi;

/// The function that a codelet exports.
pub(crate) const ENTRY: &str = "apply";
/// Exports that [`rewrite`](super::rewrite) adds begin with this.
pub(crate) const RESERVED_PREFIX: &str = "sinew:";

/// The largest initial memory that is restored rather than made anew: two
/// pages, clang's default. Wiping 64 KiB takes about 0.6 µs and a fresh
/// instance with a memory 2.8 µs, so much more than this would not pay.
pub(crate) const RESTORED_MEMORY_MAX: u64 = 128 << 10;
/// Mutable globals beyond this are not restored one by one.
const RESTORED_GLOBALS_MAX: usize = 64;
const DEFAULT_PAGE_LOG2: u32 = 16;

/// How the next application gets an instance without state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing in the instance can change: it is used again as it is.
    Stateless,
    /// At most 128 KiB of memory, and numeric globals: restored after each call.
    Restored,
    /// Anything else: a new instance for each application.
    Fresh,
    /// No codelet but a whole program: a new instance for each application, with
    /// files, arguments and streams.
    Program,
}

impl Class {
    /// A word for logs and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stateless => "stateless",
            Self::Restored => "restored",
            Self::Fresh => "fresh",
            Self::Program => "program",
        }
    }
}

/// What is known of a valid module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Initial bytes of memory and tables, as the memory limit counts them.
    pub(crate) initial_bytes: u64,
    /// Initial bytes of linear memory; `None`: the module has none.
    pub(crate) memory_bytes: Option<u64>,
    /// Whether the memory is exported under the name that the ABI demands.
    pub(crate) exports_memory: bool,
    /// Indices of the mutable globals.
    pub(crate) mutable_globals: Vec<u32>,
    mutable_references: bool,
    /// A start function, or an operator that changes tables or drops segments.
    other_state: bool,
    uses_memory_imports: bool,
    /// What a codelet imports was found, or what only a program may.
    imports_of_codelets: bool,
    imports_of_programs: Option<String>,
    /// What is wrong with it if it is a program.
    program_flaw: Option<String>,
    types: Vec<FuncType>,
    functions: Vec<u32>,
    entry: Option<u32>,
    program_entry: Option<u32>,
    imports_wasi: bool,
    tables: u32,
}

impl Scan {
    /// Validates a module; the text says why it is none that can be run.
    pub(crate) fn of(module: &[u8]) -> Result<Self, String> {
        let mut scan = Self::default();
        let features = if is_program(module) { PROGRAM_FEATURES } else { FEATURES };
        let mut validator = Validator::new_with_features(features);
        let mut allocations = FuncValidatorAllocations::default();
        for payload in Parser::new(0).parse_all(module) {
            let payload = payload.map_err(invalid)?;
            if let ValidPayload::Func(function, body) = validator.payload(&payload).map_err(invalid)? {
                let mut function = function.into_validator(allocations);
                function.validate(&body).map_err(invalid)?;
                allocations = function.into_allocations();
                scan.code(&body).map_err(invalid)?;
            }
            scan.section(payload)?;
        }
        scan.finish()?;
        Ok(scan)
    }

    /// How instances of the module are to be treated.
    pub(crate) fn class(&self) -> Class {
        if self.is_program() {
            return Class::Program;
        }
        if self.other_state || self.mutable_references || self.mutable_globals.len() > RESTORED_GLOBALS_MAX {
            return Class::Fresh;
        }
        match self.memory_bytes {
            None if self.mutable_globals.is_empty() => Class::Stateless,
            Some(bytes) if bytes > RESTORED_MEMORY_MAX => Class::Fresh,
            _ => Class::Restored,
        }
    }

    fn section(&mut self, payload: Payload<'_>) -> Result<(), String> {
        match payload {
            Payload::TypeSection(types) => {
                for function in types.into_iter_err_on_gc_types() {
                    self.types.push(function.map_err(invalid)?);
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(invalid)?;
                    self.import(import.module, import.name, import.ty)?;
                }
            }
            Payload::FunctionSection(functions) => {
                for ty in functions {
                    self.functions.push(ty.map_err(invalid)?);
                }
            }
            Payload::TableSection(tables) => {
                for table in tables {
                    self.table(table.map_err(invalid)?.ty.initial)?;
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let memory = memory.map_err(invalid)?;
                    let page_log2 = memory.page_size_log2.unwrap_or(DEFAULT_PAGE_LOG2);
                    // At most 2^32 bytes: the validator saw to that.
                    let bytes = memory.initial << page_log2;
                    self.memory_bytes = Some(bytes);
                    self.initial_bytes += bytes;
                }
            }
            Payload::GlobalSection(globals) => {
                for (index, global) in (0..).zip(globals) {
                    let ty = global.map_err(invalid)?.ty;
                    if ty.mutable {
                        self.mutable_globals.push(index);
                        self.mutable_references |= matches!(ty.content_type, ValType::Ref(_));
                    }
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export.map_err(invalid)?;
                    self.export(export.name, export.kind, export.index)?;
                }
            }
            Payload::StartSection { .. } => self.other_state = true,
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, module: &str, name: &str, ty: TypeRef) -> Result<(), String> {
        if module == MODULE {
            let known = IMPORTS.iter().find(|import| import.name == name);
            let (Some(known), TypeRef::Func(ty)) = (known, ty) else {
                return Err(format!("it imports {module:?} {name:?}, which is no function of {MODULE}"));
            };
            if !self.has_type(ty, known.params, known.results) {
                return Err(format!("it imports {name:?} with another type than {MODULE} gives it"));
            }
            self.uses_memory_imports |= known.needs_memory;
            self.imports_of_codelets = true;
            self.functions.push(ty);
            return Ok(());
        }
        self.imports_wasi |= module == wasi::MODULE;
        self.imports_of_programs.get_or_insert_with(|| format!("{module:?} {name:?}"));
        let flaw = match ty {
            TypeRef::Func(ty) => {
                self.functions.push(ty);
                self.flaw_of_import(module, name, ty)
            }
            _ => Some(format!("it imports {module:?} {name:?}, which is no function")),
        };
        self.program_flaw = self.program_flaw.take().or(flaw);
        Ok(())
    }

    /// Why a program cannot import a function like this; what nobody has, it may.
    fn flaw_of_import(&self, module: &str, name: &str, ty: u32) -> Option<String> {
        if module != wasi::MODULE {
            return None;
        }
        match wasi::calls::IMPORTS.iter().find(|import| import.name == name) {
            None => Some(format!("it imports {module:?} {name:?}, which is no function of {module}")),
            Some(known) if self.has_type(ty, known.params, known.results) => None,
            Some(_) => Some(format!("it imports {name:?} with another type than {module} gives it")),
        }
    }

    fn has_type(&self, ty: u32, params: &[ValType], results: &[ValType]) -> bool {
        let found = self.types.get(ty as usize);
        found.is_some_and(|found| found.params() == params && found.results() == results)
    }

    /// Whether it is a whole program, not a codelet.
    fn is_program(&self) -> bool {
        self.entry.is_none() && (self.program_entry.is_some() || self.imports_wasi)
    }

    /// Whether memory and numeric globals are all that its code can change: then a snapshot
    /// of these is one of everything.
    pub(crate) fn is_capturable(&self) -> bool {
        self.memory_bytes.is_some() && self.exports_memory && !self.other_state && !self.mutable_references
    }

    fn table(&mut self, elements: u64) -> Result<(), String> {
        self.tables += 1;
        if self.tables > TABLES_MAX {
            return Err(format!("it has more than {TABLES_MAX} tables"));
        }
        if elements > TABLE_ELEMENTS_MAX {
            return Err(format!("it has a table of more than {TABLE_ELEMENTS_MAX} elements"));
        }
        self.initial_bytes += elements * TABLE_ELEMENT_BYTES;
        Ok(())
    }

    fn export(&mut self, name: &str, kind: ExternalKind, index: u32) -> Result<(), String> {
        match (name, kind) {
            (ENTRY, ExternalKind::Func) => self.entry = Some(index),
            (wasi::ENTRY, ExternalKind::Func) => self.program_entry = Some(index),
            (ENTRY, _) => return Err(format!("its export {ENTRY:?} is no function")),
            (MEMORY, ExternalKind::Memory) => self.exports_memory = true,
            (MEMORY, _) => return Err(format!("its export {MEMORY:?} is no memory")),
            _ if name.starts_with(RESERVED_PREFIX) => {
                return Err(format!(
                    "its export {name:?} begins with {RESERVED_PREFIX:?}, which is reserved"
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks for operators that change what no reset restores.
    fn code(&mut self, body: &FunctionBody<'_>) -> wasmparser::Result<()> {
        if self.other_state {
            return Ok(());
        }
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            match operators.read()? {
                Operator::TableSet { .. }
                | Operator::TableGrow { .. }
                | Operator::TableFill { .. }
                | Operator::TableCopy { .. }
                | Operator::TableInit { .. }
                | Operator::ElemDrop { .. }
                | Operator::DataDrop { .. } => {
                    self.other_state = true;
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), String> {
        let type_of =
            |function: u32| self.functions.get(function as usize).and_then(|&ty| self.types.get(ty as usize));
        if self.is_program() {
            if let Some(flaw) = &self.program_flaw {
                return Err(flaw.clone());
            }
            if self.imports_of_codelets {
                return Err(format!("it is a program, since it exports no {ENTRY:?}, but imports {MODULE}"));
            }
            let fits = |ty: &FuncType| ty.params().is_empty() && ty.results().is_empty();
            if let Some(entry) = self.program_entry
                && !type_of(entry).is_some_and(fits)
            {
                return Err(format!("its export {:?} takes or returns something", wasi::ENTRY));
            }
            return Ok(());
        }
        let Some(entry) = self.entry else {
            return Err(format!(
                "it does not export a function {ENTRY:?}, as codelets do, or {:?}, as programs do",
                wasi::ENTRY
            ));
        };
        if let Some(import) = &self.imports_of_programs {
            return Err(format!("it imports {import}, which is no function of {MODULE}"));
        }
        let ty = type_of(entry);
        let fits = |ty: &FuncType| ty.params() == [ValType::I32] && ty.results() == [ValType::I32];
        if !ty.is_some_and(fits) {
            return Err(format!("its export {ENTRY:?} does not take and return one i32"));
        }
        if self.uses_memory_imports && !self.exports_memory {
            return Err(format!("it imports a function that uses its memory, but exports no {MEMORY:?}"));
        }
        Ok(())
    }
}

/// Whether a module is a program and no codelet, as far as that can be told of bytes that
/// nobody has validated.
pub fn is_program(module: &[u8]) -> bool {
    let mut imports = false;
    for payload in Parser::new(0).parse_all(module) {
        match payload {
            Ok(Payload::ImportSection(section)) => {
                imports = section.into_imports().flatten().any(|import| import.module == wasi::MODULE);
            }
            Ok(Payload::ExportSection(exports)) => {
                let names: Vec<&str> = exports.into_iter().flatten().map(|export| export.name).collect();
                return !names.contains(&ENTRY) && (imports || names.contains(&wasi::ENTRY));
            }
            Ok(Payload::CodeSectionStart { .. }) | Err(_) => return false,
            Ok(_) => {}
        }
    }
    false
}

fn invalid(error: wasmparser::BinaryReaderError) -> String {
    format!("it is not valid WebAssembly: {error}")
}
