// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! tokio tasks in several threads take turns with a mutex that another process holds at first. One
//! thread owns the loop, and dispatches it; all other threads use its handle.
use memwait::{Handle, Loop, Mutex, Ref, Shared};
use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

extern "C" {
    fn fork() -> i32;
}

const TASKS: u32 = 4;
const TURNS: u32 = 100;

/// Starts a thread that dispatches a loop until the process ends.
fn start_loop() -> Result<Handle, Box<dyn Error>> {
    let (sender, receiver) = mpsc::channel();

    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();

        runtime.expect("a runtime").block_on(async {
            let on = Loop::new();
            let handle = on.as_ref().map(|on| on.handle()).map_err(|error| *error);

            sender.send(handle).expect("a receiver");
            let Ok(on) = on else { return };
            let fd = AsyncFd::new(on).expect("a descriptor");
            loop {
                let mut ready = fd.readable().await.expect("readiness");

                fd.get_ref().dispatch().expect("a loop of this process");
                ready.clear_ready();
            }
        });
    });
    Ok(receiver.recv()??)
}

async fn take_turns(mutex: Ref<Mutex<u32>>, on: Handle) -> Result<(), memwait::Error> {
    for _ in 0..TURNS {
        let mut number = mutex.lock_async(&on).await?;

        // The task holds the guard, and may continue in another thread.
        tokio::task::yield_now().await;
        *number += 1;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let memory = Shared::anonymous(4096)?;
    // SAFETY: nothing else lies at offset 0.
    let mutex = unsafe { memory.construct(0, Mutex::new(0))? };
    let mut guard = mutex.lock()?;

    // SAFETY: there is one thread.
    if unsafe { fork() } != 0 {
        // The parent works for a while, with the mutex locked.
        std::thread::sleep(Duration::from_millis(100));
        *guard = 1000;
        drop(guard);
        // Wait until the tasks have had their turns.
        while *mutex.lock()? != 1000 + TASKS * TURNS {
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("all had their turns");
        return Ok(());
    }
    std::mem::forget(guard); // the parent's guard unlocks the mutex

    let on = start_loop()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| tokio::spawn(take_turns(mutex.clone(), on.clone())))
            .collect();

        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}
