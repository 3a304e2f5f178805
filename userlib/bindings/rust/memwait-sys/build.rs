// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! Asks pkg-config where libmemwait is.
use std::env;
use std::process::Command;

fn main() {
    for name in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "LIBRARY_PATH"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    println!("cargo:rerun-if-changed=build.rs");
    let program = env::var("PKG_CONFIG").unwrap_or("pkg-config".to_string());
    match Command::new(&program).args(["--libs-only-L", "memwait"]).output() {
        Ok(output) if output.status.success() => {
            let flags = String::from_utf8_lossy(&output.stdout);
            for directory in flags.split_whitespace().filter_map(|flag| flag.strip_prefix("-L")) {
                println!("cargo:rustc-link-search=native={}", directory);
            }
        }
        // The linker searches these directories anyway.
        _ if env::var_os("LIBRARY_PATH").is_some() => {}
        _ => println!("cargo:warning={} does not find libmemwait", program),
    }
}
