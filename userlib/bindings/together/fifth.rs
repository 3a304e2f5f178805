// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! The Rust program, which uses a future: fifth FILE
use memwait::{Error, Handle, Loop, Mutex, Ref, Shareable, Shared};
use std::fs::OpenOptions;
use std::thread::sleep;
use std::time::Duration;

const MUTEX: usize = 0;
const CHANNEL: usize = 1024;
const SIZE: usize = 4096;
const ROUNDS: u32 = 10;
const HOLD: Duration = Duration::from_millis(2);
const NAME: [u8; 8] = *b"Rust\0\0\0\0";
const LETTER: u8 = b'R';

/// The data behind the mutex, which has 40 bytes.
#[repr(C)]
struct Guarded {
    _before: [u8; 88],
    holder: u8, // at 128
    turns: u32,
    _between: [u8; 120],
    log: [u8; 100], // at 256
}

// SAFETY: the struct contains only numbers, in C's layout.
unsafe impl Shareable for Guarded {}

async fn take_turns(memory: &Shared, on: &Handle) -> Result<(), Error> {
    // SAFETY: the first program has initialised the mutex and the channel.
    let mutex: Ref<Mutex<Guarded>> = unsafe { memory.attach(MUTEX)? };
    // SAFETY: as above.
    let channel = unsafe { memory.attach_channel::<[u8; 8]>(CHANNEL)? };

    channel.send_async(NAME, on).await?;
    for _ in 0..ROUNDS {
        let mut shared = mutex.lock_async(on).await?;
        let turn = shared.turns as usize;

        assert_eq!(shared.holder, 0);
        shared.holder = LETTER;
        shared.log[turn] = LETTER;
        shared.turns += 1;
        sleep(HOLD);
        assert_eq!(shared.holder, LETTER);
        shared.holder = 0;
    }
    channel.send_async(NAME, on).await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args_os().nth(1).ok_or("fifth FILE")?;
    let file = OpenOptions::new().read(true).write(true).open(name)?;
    let memory = Shared::map(&file, 0, SIZE)?;
    let on = Loop::new()?;

    on.block_on(take_turns(&memory, &on))??;
    Ok(())
}
