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

/// What may lie in memory that processes share.
///
/// # Safety
/// It has the same layout in all of them, as `#[repr(C)]` gives, is valid wherever they map it,
/// and means the same there: no pointers, references, descriptors or thread ids. A struct that
/// lies there by itself is `Send` and `Sync`, too; what a mutex guards is `Send`.
///
/// `u128` and `i128` are none, nor is a struct of them: on x86-64 their alignment depends on the
/// version of the compiler, 8 up to 1.76 and 16 from 1.77 on. `[u64; 2]` is one.
pub unsafe trait Shareable: 'static {}

macro_rules! shareable {
    ($($ty:ident)*) => { $(
        // SAFETY: of one layout, without pointers.
        unsafe impl Shareable for $ty {}
    )* };
}

shareable!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 bool char);
shareable!(AtomicBool AtomicU8 AtomicU16 AtomicU32 AtomicU64 AtomicI8 AtomicI16 AtomicI32);
shareable!(AtomicI64);

// SAFETY: it has none.
unsafe impl Shareable for () {}
// SAFETY: as its items.
unsafe impl<T: Shareable, const N: usize> Shareable for [T; N] {}

/// An object and a share in the memory it lies in: an `Arc`, of which operations that are pending
/// have one, too, so that the memory outlives them. From an `Arc<T>`, a `&'static T`, a value, or
/// [`Shared`] memory.
pub struct Ref<T: 'static> {
    object: NonNull<T>,
    // Never read: it lives.
    _memory: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: it is an Arc<T>.
unsafe impl<T: Send + Sync> Send for Ref<T> {}
// SAFETY: likewise.
unsafe impl<T: Send + Sync> Sync for Ref<T> {}

impl<T: Send + Sync + 'static> Ref<T> {
    /// The object in memory of this process.
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
        // SAFETY: the memory lives as long as this, and the object is initialised.
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

// SAFETY: it is an address and a length; what lies there is accessed through Ref<T>.
unsafe impl Send for Memory {}
// SAFETY: likewise.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Mapped = self.owner {
            // SAFETY: it is this mapping, and nothing refers to it any more.
            unsafe { munmap(self.start.as_ptr().cast(), self.size) };
        }
    }
}

/// Memory that processes share, and in which objects lie at offsets. A clone is the same mapping,
/// which lasts as long as any of them, and any [`Ref`] into it. Nothing in it is
/// dropped.
///
/// A child of `fork(2)` has the mapping, too.
#[derive(Clone)]
pub struct Shared(Arc<Memory>);

impl Shared {
    /// Of this process and its future children.
    pub fn anonymous(size: usize) -> io::Result<Shared> {
        Shared::new(size, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
    }

    /// `size` bytes of a file from `offset` on, a multiple of the size of a page. The file is long
    /// enough, and readable and writable.
    ///
    /// Access to what another process cuts off the file raises `SIGBUS`.
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

    /// Memory that something else maps, such as another crate, and `owner` keeps there.
    ///
    /// # Safety
    /// The `size` bytes can be read and written until `owner` is dropped, and are accessed in no
    /// other way than as the objects that lie there.
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

    /// Its length in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size
    }

    pub(crate) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }

    /// Where an object of `size` bytes lies. EINVAL: not within the memory, or misaligned.
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

    /// The object at `offset`. `EINVAL`: it would not lie within the memory, or is misaligned.
    ///
    /// # Safety
    /// An initialised `T` lies there, or zeroed memory if that is a valid `T`: it is a [`Mutex`],
    /// [`RwLock`], [`Condvar`], [`Semaphore`] or [`Event`](crate::Event). A mutex or a read-write
    /// lock that another language has initialised is of a kind that its type here makes: neither
    /// recursive nor errorcheck, a [`Mutex`] and an [`RwLock`] not robust, a [`RobustMutex`]
    /// robust. While it is in use, its bytes are accessed in no other way, in any process. What is
    /// private is used by one process.
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

    /// Moves an object to `offset`, over what is there. Errors as of [`attach`](Shared::attach).
    ///
    /// # Safety
    /// As of `attach`, and nothing uses what was there.
    pub unsafe fn construct<T: Shareable + Send + Sync>(
        &self,
        offset: usize,
        value: T,
    ) -> Result<Ref<T>, Error> {
        // SAFETY: the caller's promise; it is read only after the write.
        let object = unsafe { self.attach::<T>(offset)? };

        // SAFETY: it has been checked to fit there.
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

/// A file of `size` zeroed bytes without a name, see `memfd_create(2)`, to be [mapped](Shared::map)
/// and given to other processes. It is closed on exec.
pub fn memfd(size: u64) -> io::Result<File> {
    // SAFETY: a string that ends.
    let fd = unsafe { memfd_create(b"memwait\0".as_ptr().cast(), MFD_CLOEXEC) };

    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor of this function's.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(size)?;
    Ok(file)
}
