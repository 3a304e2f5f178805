// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
//! A small executor around poll(2): two tasks pass a number back and forth through channels, while
//! the executor also polls a socket. Larger executors poll the loop's descriptor in the same way,
//! for example with mio or tokio's AsyncFd.
use memwait::{Channel, Error, Loop};
use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

const POLLIN: i16 = 1;

extern "C" {
    fn poll(fds: *mut PollFd, count: std::os::raw::c_ulong, timeout: i32) -> i32;
}

/// All wakers are called by dispatch() in this thread, so a flag is enough.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Task {
    future: Pin<Box<dyn Future<Output = Result<(), Error>>>>,
    is_woken: Arc<Flag>,
}

impl Task {
    fn new(future: impl Future<Output = Result<(), Error>> + 'static) -> Task {
        Task {
            future: Box::pin(future),
            is_woken: Arc::new(Flag(AtomicBool::new(true))),
        }
    }

    /// Polls the task if it was woken. Returns whether the task continues.
    fn run(&mut self) -> Result<bool, Error> {
        if !self.is_woken.0.swap(false, Ordering::Relaxed) {
            return Ok(true);
        }
        let waker = self.is_woken.clone().into();
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(true),
            Poll::Ready(result) => result.map(|()| false),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let on = Loop::new()?;
    let (to, fro) = (Channel::<u32>::new(1)?, Channel::<u32>::new(1)?);
    let (mut reader, mut writer) = UnixStream::pair()?;
    let mut tasks = Vec::new();

    let (handle, receive, send) = (on.handle(), to.clone(), fro.clone());
    tasks.push(Task::new(async move {
        while let Some(number) = receive.recv_async(&handle).await? {
            send.send_async(number + 1, &handle).await?;
        }
        send.close()
    }));
    let handle = on.handle();
    tasks.push(Task::new(async move {
        to.send_async(0, &handle).await?;
        while let Some(number) = fro.recv_async(&handle).await? {
            if number == 1000 {
                writeln!(writer, "{} times", number).unwrap();
                to.close()?;
            } else {
                to.send_async(number, &handle).await?;
            }
        }
        Ok(())
    }));

    loop {
        let mut remaining = Vec::new();

        for mut task in tasks {
            if task.run()? {
                remaining.push(task);
            }
        }
        tasks = remaining;
        if tasks.is_empty() {
            break;
        }
        if tasks
            .iter()
            .any(|task| task.is_woken.0.load(Ordering::Relaxed))
        {
            continue;
        }
        let mut fds = [on.as_raw_fd(), reader.as_raw_fd()].map(|fd| PollFd {
            fd,
            events: POLLIN,
            revents: 0,
        });
        // SAFETY: there are two structs.
        unsafe { poll(fds.as_mut_ptr(), 2, -1) };
        if fds[0].revents != 0 {
            on.dispatch()?;
        }
        if fds[1].revents != 0 {
            let mut text = [0; 100];
            let length = reader.read(&mut text)?;

            print!("{}", String::from_utf8_lossy(&text[..length]));
        }
    }
    Ok(())
}
