// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! The declarations in `memwait.h`, the header of libmemwait, which bindgen has generated, with the
//! header's comments. `man libmemwait` documents each function. The crate `memwait` is a safe
//! interface.
//!
//! A comment may apply to several functions; it precedes the first of them. `volatile` is omitted,
//! which makes no difference for a caller.
#![allow(non_camel_case_types)]

mod bindings;

pub use bindings::*;

// On other targets, error numbers, alignments, or the C library's names for 64-bit time differ.
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(
        target_arch = "aarch64",
        target_arch = "powerpc64",
        target_arch = "riscv64",
        target_arch = "s390x",
        target_arch = "x86_64"
    )
)))]
compile_error!("memwait-sys has no declarations for this target");

#[link(name = "memwait")]
extern "C" {}

/// The library to which the test is linked has at least the version of the header.
#[test]
fn the_library_is_not_older() {
    // SAFETY: the function takes no arguments and reads a constant.
    assert!(unsafe { memwait_version() } >= MEMWAIT_VERSION);
}
