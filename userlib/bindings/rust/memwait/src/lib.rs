// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! libmemwait for Rust: locks, condition variables, semaphores and channels for threads and
//! futures, within a process or between processes.
//!
//! An object can lie anywhere: in a `static`, on a stack, or at an offset in [`Shared`] memory,
//! where programs in other languages can also use it. A thread blocks on the object. A future needs
//! a [`Ref`] to the object, and waits on a [`Loop`], whose descriptor any event loop can poll.
//! Threads and futures wait in one FIFO queue.
//!
//! ```no_run
//! use memwait::{Loop, Mutex, Ref};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mutex = Ref::new(Mutex::new(0));
//! *mutex.lock()? += 1; // blocks
//!
//! let on = Loop::new()?;
//! on.block_on(async {
//!     *mutex.lock_async(&on).await? += 1; // does not block
//!     Ok::<(), memwait::Error>(())
//! })??;
//! # Ok(())
//! # }
//! ```
//!
//! Without the device `/dev/memwait`, every call that might have to wait or wake fails immediately
//! with the reason. [`available`] returns the reason beforehand.
//!
//! # fork
//!
//! A child process can use objects in memory that it shares with its parent. The child must
//! create its own [`Loop`], must forget the parent's guards, and may drop everything else. As
//! always, if the parent had other threads, the child may only do what a signal handler may do.
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod barrier;
mod channel;
mod cond;
mod error;
mod event;
mod event_loop;
mod memory;
mod mutex;
mod operation;
mod rwlock;
mod sem;
mod time;
mod waitgroup;
pub mod word;

pub use barrier::Barrier;
pub use channel::Channel;
pub use cond::Condvar;
pub use error::{available, Error};
pub use event::{Event, UntilSet};
pub use event_loop::{Handle, Loop};
pub use memory::{memfd, Ref, Shareable, Shared};
pub use mutex::{LockError, LockResult, Mutex, MutexGuard, OwnerDied, Place, Repair, RobustMutex};
pub use operation::Operation;
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use sem::Semaphore;
pub use time::Deadline;
pub use waitgroup::{UntilDone, WaitGroup};
