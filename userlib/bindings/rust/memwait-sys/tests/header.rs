// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! Compares the declarations with the header, using the C compiler CC and the flags
//! MEMWAIT_INCLUDE, which by default find the header in the source tree.
use memwait_sys::*;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::mem::{align_of, size_of};
use std::os::raw::{c_int, c_void};
use std::process::Command;

const SOURCE: &str = include_str!("../src/lib.rs");

/// Macros of the header that are not constants for its functions: initialisers, attributes, and
/// constants that only the device uses.
const OTHERS: &[&str] = &[
    "MEMWAIT_H",
    "MEMWAIT_CHECKED",
    "MEMWAIT_MUTEX_INIT",
    "MEMWAIT_COND_INIT",
    "MEMWAIT_RWLOCK_INIT",
    "MEMWAIT_WAITGROUP_INIT",
    "MEMWAIT_EVENT_INIT",
    "MEMWAIT_FOREVER",
    "MEMWAIT_GROUP",
    "MEMWAIT_PERSISTENT",
    "MEMWAIT_LIBRARY_FLAGS",
    "MEMWAIT_NOTIFIED",
    "MEMWAIT_MORE",
    "MEMWAIT_OWNER_CONTEXT",
    "MEMWAIT_OWNER_EXIT",
    "MEMWAIT_OWNER_BIND",
];
const OTHER_FAMILIES: &[&str] = &["MEMWAIT_IOC_", "MEMWAIT_FEATURE_"];

/// Runs the compiler on the header followed by `code`, and returns its output.
fn compile(name: &str, options: &[&str], code: &str) -> String {
    let dir = env!("CARGO_TARGET_TMPDIR");
    let file = format!("{}/{}.c", dir, name);
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    let include = env::var("MEMWAIT_INCLUDE").unwrap_or(format!("-I{} -I{}/../uapi", top, top));

    fs::create_dir_all(dir).unwrap();
    fs::write(
        &file,
        format!("#include <errno.h>\n#include <memwait.h>\n{}", code),
    )
    .unwrap();
    // Rust has no volatile types.
    let output = Command::new(env::var("CC").unwrap_or("cc".to_string()))
        .args(["-std=gnu11", "-Dvolatile=", "-Werror"])
        .args(["-D_FILE_OFFSET_BITS=64", "-D_TIME_BITS=64"])
        .args(include.split_whitespace())
        .args(options)
        .arg(&file)
        .output()
        .expect("the C compiler runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{}", code, errors);
    String::from_utf8(output.stdout).unwrap()
}

struct Function {
    name: String,
    arguments: Vec<String>,
    result: String,
}

/// All `pub fn` of the source.
fn functions() -> Vec<Function> {
    let block = SOURCE.split("extern \"C\" {").last().unwrap();
    let words: Vec<&str> = block.split_whitespace().collect();
    let text = words.join(" ");

    text.split("pub fn ")
        .skip(1)
        .map(|function| {
            let function = &function[..function.find(';').unwrap()];
            let (name, rest) = function.split_once('(').unwrap();
            let (arguments, result) = rest.split_once(") -> ").unwrap();
            let arguments = arguments
                .split(", ")
                .map(|argument| argument.trim().trim_end_matches(','))
                .filter(|argument| !argument.is_empty())
                .map(|argument| argument.split_once(": ").unwrap().1.to_string())
                .collect();
            Function {
                name: name.to_string(),
                arguments,
                result: result.to_string(),
            }
        })
        .collect()
}

/// Converts a type of the source to C.
fn in_c(ty: &str) -> String {
    if let Some(to) = ty.strip_prefix("*const ") {
        return format!("{} const *", in_c(to));
    }
    if let Some(to) = ty.strip_prefix("*mut ") {
        return format!("{} *", in_c(to));
    }
    match ty {
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_char" => "char",
        "c_void" => "void",
        "usize" => "size_t",
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "timespec" | "memwait_wait" | "memwait_notify" => return format!("struct {}", ty),
        _ => ty,
    }
    .to_string()
}

/// Checks the prototypes: a declaration that differs from the header's does not compile.
#[test]
fn prototypes_are_the_headers() {
    let mut code = String::new();

    for function in functions() {
        let arguments: Vec<String> = function.arguments.iter().map(|ty| in_c(ty)).collect();
        let arguments = if arguments.is_empty() {
            "void".to_string()
        } else {
            arguments.join(", ")
        };
        let result = in_c(&function.result);
        code += &format!("extern {} {}({});\n", result, function.name, arguments);
    }
    compile("prototypes", &["-fsyntax-only"], &code);
}

#[test]
fn each_function_of_the_header_is_declared() {
    let header = compile("functions", &["-E", "-P"], "");
    let mut there = BTreeSet::new();

    for (at, _) in header.match_indices('(') {
        let before = header[..at].trim_end();
        let name = before
            .rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            .next()
            .unwrap();
        if name.starts_with("memwait_") {
            there.insert(name.to_string());
        }
    }
    let declared = functions()
        .into_iter()
        .map(|function| function.name)
        .collect();
    assert!(there.len() > 100, "{:?}", there);
    assert_eq!(there, declared);
}

/// The name and type of each constant of the source.
fn constants() -> Vec<(&'static str, &'static str)> {
    SOURCE
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub const "))
        .filter(|line| !line.starts_with("fn "))
        .map(|line| line[..line.find(" =").unwrap()].split_once(": ").unwrap())
        .collect()
}

macro_rules! values {
    ($($name:ident)*) => { &[$((stringify!($name), $name as i128)),*] };
}

#[test]
fn constants_are_the_headers() {
    let values: &[(&str, i128)] = values!(
        CLOCK_REALTIME CLOCK_MONOTONIC
        MEMWAIT_VERSION_MAJOR MEMWAIT_VERSION_MINOR MEMWAIT_VERSION_PATCH MEMWAIT_VERSION
        MEMWAIT_OK MEMWAIT_NOT_EQUAL MEMWAIT_TIMED_OUT MEMWAIT_PENDING MEMWAIT_OWNER_DIED
        MEMWAIT_SIZE_U8 MEMWAIT_SIZE_U16 MEMWAIT_SIZE_U32 MEMWAIT_SIZE_U64 MEMWAIT_SIZE_MASK
        MEMWAIT_PRIVATE MEMWAIT_CLOCK_REALTIME MEMWAIT_OWNED MEMWAIT_RELATIVE
        MEMWAIT_OWNER_MASK MEMWAIT_ALL MEMWAIT_GROUP_MAX
        MEMWAIT_CHANGE_SET MEMWAIT_CHANGE_ADD MEMWAIT_CHANGE_AND MEMWAIT_CHANGE_OR
        MEMWAIT_CHANGE_XOR MEMWAIT_CHANGE_IF_NONE_WOKEN
        MEMWAIT_MUTEX_NORMAL MEMWAIT_MUTEX_RECURSIVE MEMWAIT_MUTEX_ERRORCHECK
        MEMWAIT_MUTEX_FAIR MEMWAIT_MUTEX_ROBUST
        MEMWAIT_COND_MONOTONIC MEMWAIT_SEM_VALUE_MAX MEMWAIT_SEM_FAIR MEMWAIT_SEM_FAIR_VALUE_MAX
        MEMWAIT_RWLOCK_PREFER_READER MEMWAIT_RWLOCK_FAIR MEMWAIT_RWLOCK_ROBUST
        MEMWAIT_RWLOCK_PREFER_WRITER
        MEMWAIT_BARRIER_SERIAL_THREAD MEMWAIT_WAITGROUP_MAX
        EPERM ENOENT EINTR EAGAIN EBUSY EINVAL EPIPE ETIMEDOUT EINPROGRESS ECANCELED EOWNERDEAD
        ENOTRECOVERABLE
    );
    let compared: BTreeSet<&str> = values.iter().map(|(name, _)| *name).collect();
    let mut code = String::new();

    assert_eq!(
        compared,
        constants().iter().map(|(name, _)| *name).collect()
    );
    for (name, value) in values {
        // Compare the sign as well as the value: -1 is not ~0U.
        let sign = if *value < 0 { "<" } else { ">=" };
        let value = format!("{}{}", value, if *value < 0 { "LL" } else { "ULL" });
        code += &format!(
            "_Static_assert({} == {} && {} {} 0, \"{}\");\n",
            name, value, name, sign, name
        );
    }
    compile("constants", &["-fsyntax-only", "-Wno-type-limits"], &code);
}

#[test]
fn each_constant_of_the_header_is_declared() {
    let macros = compile("macros", &["-E", "-dM"], "");
    let declared: BTreeSet<&str> = constants().iter().map(|(name, _)| *name).collect();

    for line in macros.lines() {
        let name = line.split_whitespace().nth(1).unwrap();
        let is_constant = name.starts_with("MEMWAIT_")
            && !name.contains('(')
            && !OTHERS.contains(&name)
            && !OTHER_FAMILIES.iter().any(|family| name.starts_with(family));
        assert!(!is_constant || declared.contains(name), "{}", name);
    }
}

macro_rules! layout {
    ($code:ident, $c:literal, $ty:ty $(, $field:ident)*) => {
        $code += &format!(
            "_Static_assert(sizeof({0}) == {1} && _Alignof({0}) == {2}, \"{0}\");\n",
            $c, size_of::<$ty>(), align_of::<$ty>()
        );
        $({
            let place = std::mem::MaybeUninit::<$ty>::uninit();
            // SAFETY: this takes the address of a field, and reads nothing.
            let field = unsafe { std::ptr::addr_of!((*place.as_ptr()).$field) as usize };
            $code += &format!(
                "_Static_assert(offsetof({0}, {1}) == {2}, \"{0}.{1}\");\n",
                $c, stringify!($field), field - place.as_ptr() as usize
            );
        })*
    };
}

unsafe extern "C" fn called(_: *mut memwait_op_t, _: c_int, _: *mut c_void) {}

#[test]
fn types_are_the_headers() {
    let mut code = String::new();

    layout!(code, "memwait_op_t", memwait_op_t, reserved);
    layout!(code, "memwait_mutex_t", memwait_mutex_t, reserved);
    layout!(code, "memwait_cond_t", memwait_cond_t, reserved);
    layout!(code, "memwait_sem_t", memwait_sem_t, reserved);
    layout!(code, "memwait_rwlock_t", memwait_rwlock_t, reserved);
    layout!(code, "memwait_barrier_t", memwait_barrier_t, reserved);
    layout!(code, "memwait_waitgroup_t", memwait_waitgroup_t, reserved);
    layout!(code, "memwait_event_t", memwait_event_t, reserved);
    layout!(code, "struct timespec", timespec, tv_sec, tv_nsec);
    layout!(
        code,
        "struct memwait_wait",
        memwait_wait,
        addr,
        expected,
        deadline,
        flags,
        reserved
    );
    layout!(
        code,
        "struct memwait_notify",
        memwait_notify,
        addr,
        count,
        flags
    );
    // The callback must have this type, because the comparison repeats its arguments.
    let _: unsafe extern "C" fn(*mut memwait_op_t, c_int, *mut c_void) =
        memwait_callback_t::unwrap(Some(called));
    code += "_Static_assert(__builtin_types_compatible_p(memwait_callback_t, \
        void (*)(memwait_op_t *, int, void *)), \"memwait_callback_t\");\n";
    layout!(code, "memwait_callback_t", memwait_callback_t);
    layout!(code, "clockid_t", clockid_t);
    compile("types", &["-fsyntax-only"], &code);
}

/// The version of the library that the test is linked to is at least that of the header.
#[test]
fn the_library_is_not_older() {
    // SAFETY: it takes nothing and reads a constant.
    assert!(unsafe { memwait_version() } >= MEMWAIT_VERSION);
}
