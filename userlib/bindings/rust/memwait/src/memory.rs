// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
use crate::error::Error;
use memwait_sys::EINVAL;
use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::os::unix::io::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI16, AtomicI32, AtomicI64, AtomicI8};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8};
use std::sync::Arc;

extern "C" {
    fn mmap(
        address: *mut c_void,
        size: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(address: *mut c_void, size: usize) -> c_int;
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
}

const PROT_READ_WRITE: c_int = 0x1 | 0x2;
const MAP_SHARED: c_int = 0x1;
const MAP_ANONYMOUS: c_int = 0x20;
const MFD_CLOEXEC: c_uint = 0x1;

/// Types whose values may lie in memory that processes share.
///
/// # Safety
/// The type must have the same layout in all processes, as with `#[repr(C)]`. Its values must be
/// valid at any address, and must have the same meaning in every process: no pointers, references,
/// descriptors or thread ids. A struct that no mutex guards must also be `Send` and `Sync`; data
/// that a mutex guards must be `Send`.
///
/// `u128` and `i128`, and structs that contain them, must not be shared: on x86-64 their alignment
/// depends on the compiler: 8 up to version 1.76, 16 from version 1.77 on. Use `[u64; 2]`.
pub unsafe trait Shareable: 'static {}

macro_rules! shareable {
    ($($ty:ident)*) => { $(
        // SAFETY: it has one layout, and no pointers.
        unsafe impl Shareable for $ty {}
    )* };
}

shareable!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 bool char);
shareable!(AtomicBool AtomicU8 AtomicU16 AtomicU32 AtomicU64 AtomicI8 AtomicI16 AtomicI32);
shareable!(AtomicI64);

// SAFETY: it has no bytes.
unsafe impl Shareable for () {}
// SAFETY: its items are shareable.
unsafe impl<T: Shareable, const N: usize> Shareable for [T; N] {}

/// A reference to an object, with a share in its memory, like an `Arc`. Pending operations also
/// hold a share, so that the memory outlives them. A `Ref` is created from an `Arc<T>`, a value, a
/// `&'static T`, or [`Shared`] memory.
pub struct Ref<T: 'static> {
    object: NonNull<T>,
    // Never read; it prevents the memory from being freed.
    _memory: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: it behaves like an Arc<T>.
unsafe impl<T: Send + Sync> Send for Ref<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Ref<T> {}

impl<T: Send + Sync + 'static> Ref<T> {
    /// Puts an object into this process's memory.
    pub fn new(value: T) -> Ref<T> {
        Arc::new(value).into()
    }
}

impl<T: 'static> Clone for Ref<T> {
    fn clone(&self) -> Ref<T> {
        Ref {
            object: self.object,
            _memory: self._memory.clone(),
        }
    }
}

impl<T: Send + Sync + 'static> From<Arc<T>> for Ref<T> {
    fn from(object: Arc<T>) -> Ref<T> {
        Ref {
            object: NonNull::from(&*object),
            _memory: Some(object),
        }
    }
}

impl<T: Sync + 'static> From<&'static T> for Ref<T> {
    fn from(object: &'static T) -> Ref<T> {
        Ref {
            object: NonNull::from(object),
            _memory: None,
        }
    }
}

impl<T: 'static> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the memory lives as long as this reference, and the object is initialised.
        unsafe { self.object.as_ref() }
    }
}

impl<T: fmt::Debug + 'static> fmt::Debug for Ref<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

enum Owner {
    Mapped,
    Borrowed(#[allow(dead_code)] Arc<dyn Any + Send + Sync>),
}

struct Memory {
    start: NonNull<u8>,
    size: usize,
    owner: Owner,
}

// SAFETY: it is an address and a length. Objects there are accessed through Ref<T>.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Mapped = self.owner {
            // SAFETY: the mapping belongs to this value, and nothing refers to the mapping any
            // more.
            unsafe { munmap(self.start.as_ptr().cast(), self.size) };
        }
    }
}

/// Memory that processes share, with objects at offsets. A clone refers to the same mapping, which
/// exists as long as a clone or a [`Ref`] into it exists. Objects in it are never dropped.
///
/// A child process inherits the mapping.
#[derive(Clone)]
pub struct Shared(Arc<Memory>);

impl Shared {
    /// New memory, for this process and its future children.
    pub fn anonymous(size: usize) -> io::Result<Shared> {
        Shared::new(size, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
    }

    /// Maps `size` bytes of a file, beginning at `offset`, which must be a multiple of the page
    /// size. The file must be long enough, and open for reading and writing.
    ///
    /// If another process truncates the file, access beyond its end raises `SIGBUS`.
    pub fn map(file: &File, offset: u64, size: usize) -> io::Result<Shared> {
        let end = offset.checked_add(size as u64);

        if end.map_or(true, |end| end > i64::MAX as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let metadata = file.metadata()?;
        if metadata.is_file() && end > Some(metadata.len()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is too short",
            ));
        }
        Shared::new(size, MAP_SHARED, file.as_raw_fd(), offset as i64)
    }

    /// Memory that other code has mapped, for example another crate. `owner` keeps it mapped.
    ///
    /// # Safety
    /// The `size` bytes must be readable and writable until `owner` is dropped, and must
    /// be accessed only as the objects that lie there.
    pub unsafe fn borrowed(
        start: NonNull<u8>,
        size: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Shared {
        Shared(Arc::new(Memory {
            start,
            size,
            owner: Owner::Borrowed(owner),
        }))
    }

    fn new(size: usize, flags: c_int, fd: c_int, offset: i64) -> io::Result<Shared> {
        // SAFETY: a new mapping.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                size,
                PROT_READ_WRITE,
                flags,
                fd,
                offset,
            )
        };
        match NonNull::new(start.cast()) {
            Some(start) if start.as_ptr() as isize != -1 => Ok(Shared(Arc::new(Memory {
                start,
                size,
                owner: Owner::Mapped,
            }))),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size
    }

    pub(crate) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }

    /// The address of an object of `size` bytes. EINVAL: the object is not within the memory, or is
    /// misaligned.
    pub(crate) fn at(&self, offset: usize, size: usize, align: usize) -> Result<*mut u8, Error> {
        if offset > self.0.size || size > self.0.size - offset {
            return Err(Error::new(EINVAL));
        }
        let place = self.0.start.as_ptr().wrapping_add(offset);
        if place as usize % align != 0 {
            return Err(Error::new(EINVAL));
        }
        Ok(place)
    }

    /// Returns the object at `offset`. `EINVAL`: the object would not lie within the memory, or
    /// would be misaligned.
    ///
    /// # Safety
    /// An initialised `T` must lie there, or zeroed memory if `T` is a [`Mutex`],
    /// [`RwLock`], [`Condvar`], [`Semaphore`] or [`Event`](crate::Event), for which zeroed memory
    /// is valid. A mutex or a read-write lock that another language has initialised must have a
    /// kind that its Rust type can have: it must be neither recursive nor errorcheck; a
    /// [`RobustMutex`] must be robust, a [`Mutex`] or [`RwLock`] must not. While the object is in
    /// use, no process may access its bytes in another way. A private object must be used by only
    /// one process.
    ///
    /// [`RobustMutex`]: crate::RobustMutex
    /// [`Mutex`]: crate::Mutex
    /// [`RwLock`]: crate::RwLock
    /// [`Condvar`]: crate::Condvar
    /// [`Semaphore`]: crate::Semaphore
    pub unsafe fn attach<T: Shareable + Send + Sync>(
        &self,
        offset: usize,
    ) -> Result<Ref<T>, Error> {
        let place = self.at(offset, std::mem::size_of::<T>(), std::mem::align_of::<T>())?;

        Ok(Ref {
            // SAFETY: within a mapping.
            object: unsafe { NonNull::new_unchecked(place.cast()) },
            _memory: Some(self.0.clone()),
        })
    }

    /// Moves an object to `offset`, and overwrites the bytes at `offset`. Errors: see
    /// [`attach`](Shared::attach).
    ///
    /// # Safety
    /// See `attach`. In addition, nothing may use the object that was there before.
    pub unsafe fn construct<T: Shareable + Send + Sync>(
        &self,
        offset: usize,
        value: T,
    ) -> Result<Ref<T>, Error> {
        // SAFETY: the caller guarantees this. The object is read only after the write.
        let object = unsafe { self.attach::<T>(offset)? };

        // SAFETY: attach() has checked that it fits.
        unsafe { object.object.as_ptr().write(value) };
        Ok(object)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Shared")
            .field("start", &self.0.start)
            .field("size", &self.0.size)
            .finish()
    }
}

/// Creates a file of `size` zeroed bytes without a name, see `memfd_create(2)`. [Map](Shared::map)
/// it, and pass it to other processes. Its descriptor is closed on exec.
pub fn memfd(size: u64) -> io::Result<File> {
    // SAFETY: the string is terminated.
    let fd = unsafe { memfd_create(b"memwait\0".as_ptr().cast(), MFD_CLOEXEC) };

    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this function owns the descriptor.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(size)?;
    Ok(file)
}
