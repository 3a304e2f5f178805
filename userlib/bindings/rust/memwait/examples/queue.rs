// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! A process sends numbers through a queue, and blocks while the queue is full. A future receives
//! them.
use memwait::{Loop, Shared};

extern "C" {
    fn fork() -> i32;
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = Shared::anonymous(4096)?;
    // SAFETY: nothing else lies at offset 0.
    let queue = unsafe { memory.channel::<u32>(0, 16)? };

    // SAFETY: there is one thread.
    if unsafe { fork() } == 0 {
        for number in [10, 20, 30] {
            queue.send(number)?; // blocks while the queue is full
        }
        queue.close()?; // ends the loop of the receiver
        return Ok(());
    }

    let on = Loop::new()?;
    on.block_on(async {
        while let Some(number) = queue.recv_async(&on).await? {
            println!("received {}", number);
        }
        Ok::<(), memwait::Error>(())
    })??;
    Ok(())
}
