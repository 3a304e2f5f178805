// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
// The types of memwait; see README.md. A function that fails throws an Error with a code, such as ENOENT if there is no
// device; a promise is rejected with such an Error. An argument of the wrong type causes a TypeError with the code
// ERR_INVALID_ARG_TYPE, and an argument out of range causes a RangeError with the code ERR_OUT_OF_RANGE. Functions that
// ECMAScript defines throw ECMAScript's errors, which have no code.

/// <reference types="node" />

// Without this, all declarations would be exports.
export {};

/**
 * A buffer from map(), any SharedArrayBuffer, or a view of such a buffer, for example a Buffer. An
 * object must lie within the view, and its offset counts from the beginning of the view.
 */
export type SharedMemory = ArrayBuffer | SharedArrayBuffer | ArrayBufferView;

/**
 * Maps a file, which is identified by its name or by a descriptor. A file that does not exist is
 * created, and a file shorter than size bytes is extended. Returns a SharedArrayBuffer if Node.js
 * can create one from mapped memory, otherwise an ArrayBuffer. postMessage() copies the contents of
 * an ArrayBuffer: each worker must call map() itself.
 */
export function map(target: string | Buffer | URL | number,
		    size: number): ArrayBuffer | SharedArrayBuffer;

/** Creates size bytes of memory without a name. Returns a descriptor, for map() or for children. */
export function memfd(size: number): number;

/** Returns whether /dev/memwait can be used. */
export function available(): boolean;

/**
 * Returns the current number of waiters for a word, for tests and diagnosis. A word of any size is identified by the
 * address of its first byte.
 */
export function waiters(typedArray: Uint8Array | Int32Array | BigInt64Array, index: number): number;

export type Outcome = 'ok' | 'not-equal' | 'timed-out';
export type AsyncOutcome =
	| { async: false; value: 'not-equal' | 'timed-out' }
	| { async: true; value: Promise<'ok' | 'timed-out'> };

/** Like Atomics.wait(), but also works in memory from map(). Blocks the thread. timeout is in milliseconds. */
export function wait(typedArray: Int32Array, index: number, value: number, timeout?: number): Outcome;
export function wait(typedArray: BigInt64Array, index: number, value: bigint, timeout?: number): Outcome;

/** Like Atomics.waitAsync(), but also works in memory from map(). */
export function waitAsync(typedArray: Int32Array, index: number, value: number, timeout?: number): AsyncOutcome;
export function waitAsync(typedArray: BigInt64Array, index: number, value: bigint, timeout?: number): AsyncOutcome;

/** Like Atomics.notify(): wakes at most count waiters of all processes, oldest first. Returns how many it woke. */
export function notify(typedArray: Int32Array | BigInt64Array, index: number, count?: number): number;

type EngineAtomics = typeof globalThis.Atomics;
type OwnAtomics = { wait: typeof wait; waitAsync: typeof waitAsync; notify: typeof notify };

/**
 * The engine's Atomics, but with the wait, waitAsync and notify of this package. Waiters of these
 * functions and waiters of the engine's functions are in different queues.
 */
export const Atomics: Omit<EngineAtomics, keyof OwnAtomics> & OwnAtomics;

export interface BlockingOptions {
	/** Milliseconds. A wait that times out fails with the code ETIMEDOUT, unless described otherwise. */
	timeout?: number;
}

export interface Options extends BlockingOptions {
	/**
	 * Aborts the wait; nothing is consumed. Blocking functions reject this option, because they
	 * could not observe the signal.
	 */
	signal?: AbortSignal;
}

/** util.inspect() shows the offset, the current state and the current number of waiters. */
declare class SharedObject {
	/** Fails with the code EBUSY if the object is in use. */
	destroy(): void;
}

/**
 * Represents a held lock or permit, for `using` and `await using`. Disposal releases the lock or
 * permit, once. Disposal does nothing if the mutex or writer was unlocked by unlock(), or by a wait
 * that failed and left it unlocked.
 */
export interface Guard extends Disposable, AsyncDisposable {
	/** The same as [Symbol.dispose](), which Node.js has had since 18.18. */
	release(): void;
}

/** The methods of a Mutex, and of the reader and writer of an RWLock. */
declare class Lock extends SharedObject {
	lock(options?: Options): Promise<Guard>;
	lockSync(options?: BlockingOptions): Guard;
	tryLock(): boolean;
	unlock(): void;
	/**
	 * Calls callback with the lock held, until the promise that callback returns is settled. Returns
	 * the result of callback. Does not unlock if unlock() was called, or if a wait failed and left
	 * the lock unlocked.
	 */
	withLock<T>(callback: () => T | PromiseLike<T>, options?: Options): Promise<T>;
}

/** The reader or writer of an RWLock. destroy() is a method of the RWLock. */
export type Side = Omit<Lock, 'destroy'>;

export interface LockOptions<L> {
	/**
	 * If the owner of a robust lock has died, the next owner first calls this function, with the
	 * lock held. It must be synchronous: returning a promise is an error, and has the same
	 * effect as an exception.
	 */
	repair?: (lock: L) => void;
}

export type MutexOptions = LockOptions<Mutex>;

export interface MutexKind extends MutexOptions {
	/** The mutex is handed over to its waiters in FIFO order. Cannot be combined with robust. */
	fair?: boolean;
	/** If the owner, a thread, dies, the next owner repairs the data. */
	robust?: boolean;
	/** Owners are checked: a second lock fails with the code EDEADLK, an unlock by another thread with EPERM. */
	errorcheck?: boolean;
}

/** A memwait_mutex_t. Zeroed memory is an unlocked mutex. */
export class Mutex extends Lock {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number, kind?: MutexKind): Mutex;
	constructor(memory: SharedMemory, byteOffset?: number, options?: MutexOptions);
}

export type RWLockOptions = LockOptions<Side>;

export interface RWLockKind extends RWLockOptions {
	/** The lock is handed over to its waiters in FIFO order. Cannot be combined with the other options. */
	fair?: boolean;
	/**
	 * If a writer, a thread, dies, the next owner repairs the data. If a reader dies, the lock
	 * stays locked for reading.
	 */
	robust?: boolean;
	/** The first waiting writer precedes later readers. By default, readers are preferred. */
	preferWriter?: boolean;
}

/**
 * A memwait_rwlock_t: many threads can hold its reader at the same time, or one thread can hold its
 * writer. Zeroed memory is an unlocked lock.
 */
export class RWLock extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number, kind?: RWLockKind): RWLock;
	constructor(memory: SharedMemory, byteOffset?: number, options?: RWLockOptions);
	readonly reader: Side;
	readonly writer: Side;
}

/** A memwait_cond_t. Zeroed memory is a condition variable without waiters. */
export class Condition extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number): Condition;
	constructor(memory: SharedMemory, byteOffset?: number);
	/**
	 * Returns false if the wait timed out. The mutex is locked after a normal return, after an
	 * abort, and after a script has timed out. Code EPERM: the mutex was not locked. The mutex
	 * is unlocked after the codes EOWNERDEAD and ENOTRECOVERABLE and after an error from
	 * repair. The mutex may be unlocked after other errors, such as ENOMEM and ENOSPC.
	 */
	wait(mutex: Mutex, options?: Options): Promise<boolean>;
	waitSync(mutex: Mutex, options?: BlockingOptions): boolean;
	notify(count?: number): void;
	notifyAll(): void;
}

/** A memwait_sem_t. Zeroed memory is a semaphore with the value 0. */
export class Semaphore extends SharedObject {
	static readonly SIZE: number;
	/**
	 * fair: a release is handed to the oldest waiter. The value of a fair semaphore is at most
	 * 32767.
	 */
	static init(memory: SharedMemory, byteOffset?: number, value?: number,
		    kind?: { fair?: boolean }): Semaphore;
	constructor(memory: SharedMemory, byteOffset?: number);
	acquire(options?: Options): Promise<Guard>;
	acquireSync(options?: BlockingOptions): Guard;
	tryAcquire(): boolean;
	release(): void;
	readonly value: number;
}

/**
 * A memwait_barrier_t for a number of parties. A party that leaves, by a timeout (code ETIMEDOUT)
 * or a signal, does not count as arrived. At most that number of parties may wait at the same
 * time. A barrier must be created by init().
 */
export class Barrier extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset: number, parties: number): Barrier;
	constructor(memory: SharedMemory, byteOffset?: number);
	/**
	 * Returns true to one of the parties that have met. Code EPIPE: the barrier was aborted or
	 * reset. (A party in Python whose wait times out aborts the barrier.)
	 */
	wait(options?: Options): Promise<boolean>;
	waitSync(options?: BlockingOptions): boolean;
	/** Current and later waits fail with the code EPIPE, until a reset. */
	abort(): void;
	/** Current waits fail with the code EPIPE. Later waits work again. */
	reset(): void;
}

/** A memwait_waitgroup_t: a count, and functions that wait until the count is 0. In zeroed memory the count is 0. */
export class WaitGroup extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number, count?: number): WaitGroup;
	constructor(memory: SharedMemory, byteOffset?: number);
	/** Code EINVAL: the count would be negative. Code EOVERFLOW: the count would exceed 2^30 - 1. */
	add(count?: number): void;
	/** add(-1) */
	done(): void;
	/** Returns false if the wait timed out. */
	wait(options?: Options): Promise<boolean>;
	waitSync(options?: BlockingOptions): boolean;
}

/**
 * A memwait_event_t: a flag that callers can wait for. It is aligned to 4 bytes. Zeroed memory is
 * an event that is not set.
 */
export class Event extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number): Event;
	constructor(memory: SharedMemory, byteOffset?: number);
	/** Sets the event, and wakes all waiters. */
	set(): void;
	/** Clears the event: later waits wait for the next set(). */
	clear(): void;
	isSet(): boolean;
	/** Returns false if the wait timed out. */
	wait(options?: Options): Promise<boolean>;
	waitSync(options?: BlockingOptions): boolean;
}

/** A memwait_channel_t: a bounded queue of items of one size. Code EPIPE: the channel is closed. */
export class Channel extends SharedObject implements AsyncIterable<Uint8Array> {
	/** The size of a channel in bytes. */
	static size(itemSize: number, capacity: number): number;
	static init(memory: SharedMemory, byteOffset: number, itemSize: number, capacity: number): Channel;
	/** Attaches to an existing channel. */
	constructor(memory: SharedMemory, byteOffset?: number);
	readonly itemSize: number;
	readonly length: number;
	send(item: ArrayBufferView, options?: Options): Promise<void>;
	sendSync(item: ArrayBufferView, options?: BlockingOptions): void;
	trySend(item: ArrayBufferView): boolean;
	recv(options?: Options): Promise<Uint8Array>;
	recvSync(options?: BlockingOptions): Uint8Array;
	tryRecv(): Uint8Array | undefined;
	/** Further sends fail. Items that were sent can still be received. */
	close(): void;
	/** Iterates until the channel is closed and empty. */
	[Symbol.asyncIterator](): AsyncIterator<Uint8Array>;
}
