// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::raw::c_int;

/// An error number. The text comes from libmemwait, for which `ENOENT` means that the module is not
/// loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error(c_int);

impl Error {
    pub(crate) const fn new(number: c_int) -> Error {
        Error(number)
    }

    /// The error number, see `errno(3)`.
    #[must_use]
    pub const fn raw_os_error(self) -> i32 {
        self.0
    }

    /// The kind that a `std::io::Error` with this number has: `TimedOut`, `WouldBlock`,
    /// `BrokenPipe` and so on.
    #[must_use]
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.0).kind()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the text stays valid until the next call in this thread.
        let text = unsafe { CStr::from_ptr(memwait_sys::memwait_strerror(self.0)) };
        formatter.write_str(&text.to_string_lossy())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Error({}, \"{}\")", self.0, self)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// Converts the result of a function that returns 0 or a positive error number.
pub(crate) fn check(err: c_int) -> Result<(), Error> {
    match err {
        0 => Ok(()),
        err => Err(Error(err)),
    }
}

/// Like check(), for a function that only tries, and that returns `no` if it did not succeed.
pub(crate) fn check_try(err: c_int, no: c_int) -> Result<bool, Error> {
    if err == no {
        return Ok(false);
    }
    check(err).map(|()| true)
}

/// Converts the return value of a function that returns a result or a negative error number.
pub(crate) fn check_result(result: c_int) -> Result<c_int, Error> {
    if result < 0 {
        return Err(Error(-result));
    }
    Ok(result)
}

/// Returns an error if `/dev/memwait` cannot be used.
pub fn available() -> Result<(), Error> {
    // SAFETY: it has no arguments.
    check_result(unsafe { memwait_sys::memwait_available() }).map(|_| ())
}
