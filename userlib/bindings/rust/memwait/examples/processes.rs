// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! A process dies while it holds a robust mutex in shared memory, and the next owner repairs the
//! sum.
use memwait::{LockError, Repair, RobustMutex, Shareable, Shared};
use std::process::abort;

extern "C" {
    fn fork() -> i32;
    fn wait(status: *mut i32) -> i32;
}

#[repr(C)]
#[derive(Default)]
struct Account {
    parts: [u64; 2],
    sum: u64,
}

// SAFETY: numbers, in the layout of C.
unsafe impl Shareable for Account {}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Unrelated processes map a file, with Shared::map().
    let memory = Shared::anonymous(4096)?;
    // SAFETY: nothing else lies at offset 0.
    let account = unsafe { memory.construct(0, RobustMutex::new(Account::default()))? };

    // SAFETY: there is one thread.
    if unsafe { fork() } == 0 {
        let mut account = account.lock().map_err(LockError::into_error)?;

        account.parts = [3, 4];
        abort();
    }
    // SAFETY: the argument may be NULL.
    unsafe { wait(std::ptr::null_mut()) };

    // SAFETY: the owner was another process, which leaves no reference in this one.
    let account = unsafe {
        account.lock().repair(|account| {
            println!("the owner has died");
            account.sum = account.parts.iter().sum();
        })?
    };
    println!("sum {}", account.sum);
    assert_eq!(account.sum, 7);
    Ok(())
}
