// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! A process dies with a robust mutex in memory that it shares, and the next owner repairs the sum.
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

// SAFETY: numbers, in C's layout.
unsafe impl Shareable for Account {}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Programs that are not related map one file: Shared::map().
    let memory = Shared::anonymous(4096)?;
    // SAFETY: nothing else lies there.
    let account = unsafe { memory.construct(0, RobustMutex::new(Account::default()))? };

    // SAFETY: there is one thread.
    if unsafe { fork() } == 0 {
        let mut account = account.lock().map_err(LockError::into_error)?;

        account.parts = [3, 4];
        abort();
    }
    // SAFETY: it may be NULL.
    unsafe { wait(std::ptr::null_mut()) };

    // SAFETY: the owner was another process, which leaves no reference here.
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
