// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! Locks, condition variables, semaphores and channels for threads and futures, in one process or
//! between processes: libmemwait for Rust.
//!
//! An object lies anywhere: in a `static`, on a stack, or at an offset of [`Shared`] memory, where
//! programs in other languages have it, too. A thread blocks on it. A future, which needs a [`Ref`]
//! to it, waits on a [`Loop`], whose descriptor any event loop polls. All stand in one queue.
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
//!     *mutex.lock_async(&on).await? += 1; // does not
//!     Ok::<(), memwait::Error>(())
//! })??;
//! # Ok(())
//! # }
//! ```
//!
//! Without the module `/dev/memwait` everything that has to wait or wake fails with the reason, at
//! once: [`available`] tells.
//!
//! # fork
//!
//! A child of `fork(2)` goes on with objects in memory that it shares with its parent. It makes a
//! [`Loop`] of its own, forgets the parent's guards, and may drop everything else. As always, if
//! other threads ran, it only does what a signal's handler may.
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod barrier;
mod channel;
mod cond;
mod error;
mod event;
mod flag;
mod memory;
mod mutex;
mod rwlock;
mod sem;
mod time;
mod waitgroup;
pub mod word;

pub use barrier::Barrier;
pub use channel::Channel;
pub use cond::Condvar;
pub use error::{available, Error};
pub use event::{Handle, Loop, Operation};
pub use flag::{Event, UntilSet};
pub use memory::{memfd, Ref, Shareable, Shared};
pub use mutex::{LockError, LockResult, Mutex, MutexGuard, OwnerDied, Place, Repair, RobustMutex};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use sem::Semaphore;
pub use time::Deadline;
pub use waitgroup::{UntilDone, WaitGroup};
