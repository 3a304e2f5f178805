// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
// Types of memwait: see README.md. A failure is an Error with a code, such as ENOENT without the device. An argument of
// another type is a TypeError with code ERR_INVALID_ARG_TYPE, one out of range a RangeError with ERR_OUT_OF_RANGE; of
// functions that ECMAScript has, they are its errors, without a code.

/// <reference types="node" />

// Without it all declarations would be exports.
export {};

/**
 * What map() returns, or any SharedArrayBuffer; or a view of one, such as a Buffer, within which an
 * object lies then: its offset counts from the view's beginning.
 */
export type SharedMemory = ArrayBuffer | SharedArrayBuffer | ArrayBufferView;

/**
 * Maps a file, or what a descriptor is of. A file that is not there is made; one that is shorter
 * than size bytes grows. A SharedArrayBuffer where Node can make one of it. Anything else is an
 * ArrayBuffer, of which postMessage() copies the contents: a worker calls map() itself.
 */
export function map(target: string | Buffer | URL | number,
		    size: number): ArrayBuffer | SharedArrayBuffer;

/** A descriptor of size bytes of new memory without a name, for children or map(). */
export function memfd(size: number): number;

/** Whether /dev/memwait can be used. */
export function available(): boolean;

/**
 * How many wait for a word: out of date at once, for tests and diagnosis. Of any size, it has the address of its
 * first byte.
 */
export function waiters(typedArray: Uint8Array | Int32Array | BigInt64Array, index: number): number;

export type Outcome = 'ok' | 'not-equal' | 'timed-out';
export type AsyncOutcome =
	| { async: false; value: 'not-equal' | 'timed-out' }
	| { async: true; value: Promise<'ok' | 'timed-out'> };

/** As Atomics.wait(), also in memory of map(): blocks the thread. timeout is in milliseconds. */
export function wait(typedArray: Int32Array, index: number, value: number, timeout?: number): Outcome;
export function wait(typedArray: BigInt64Array, index: number, value: bigint, timeout?: number): Outcome;

/** As Atomics.waitAsync(). */
export function waitAsync(typedArray: Int32Array, index: number, value: number, timeout?: number): AsyncOutcome;
export function waitAsync(typedArray: BigInt64Array, index: number, value: bigint, timeout?: number): AsyncOutcome;

/** As Atomics.notify(): wakes up to count waiters of all processes, oldest first; returns how many. */
export function notify(typedArray: Int32Array | BigInt64Array, index: number, count?: number): number;

type EngineAtomics = typeof globalThis.Atomics;
type OwnAtomics = { wait: typeof wait; waitAsync: typeof waitAsync; notify: typeof notify };

/** The engine's, with these wait, waitAsync and notify, which know only each other's waiters. */
export const Atomics: Omit<EngineAtomics, keyof OwnAtomics> & OwnAtomics;

export interface BlockingOptions {
	/** In milliseconds. When it has passed: code ETIMEDOUT. */
	timeout?: number;
}

export interface Options extends BlockingOptions {
	/** Gives the wait up, without having consumed anything. What blocks refuses one: it could not see it come. */
	signal?: AbortSignal;
}

/** util.inspect() shows its place and state, and how many wait for it: out of date at once. */
declare class SharedObject {
	/** Code EBUSY: it is in use. */
	destroy(): void;
}

/**
 * Of what was locked or acquired, for `using` and `await using`: gives it back, once. Does nothing
 * after an unlock() of its mutex or writer, or a wait that has left its mutex unlocked.
 */
export interface Guard extends Disposable, AsyncDisposable {
	/** As [Symbol.dispose](), which Node has from 18.18 on. */
	release(): void;
}

/** What a Mutex and each side of an RWLock have. */
declare class Lock extends SharedObject {
	lock(options?: Options): Promise<Guard>;
	lockSync(options?: BlockingOptions): Guard;
	tryLock(): boolean;
	unlock(): void;
	/**
	 * callback's result, with it locked until its promise is settled. There is no unlock if
	 * unlock() was called, or a wait has left it unlocked.
	 */
	withLock<T>(callback: () => T | PromiseLike<T>, options?: Options): Promise<T>;
}

/** The RWLock is what is destroyed. */
export type Side = Omit<Lock, 'destroy'>;

export interface LockOptions<L> {
	/**
	 * If the owner of a robust lock has died, the next one runs this first, with it locked. It
	 * must be synchronous: what returns a promise fails, as if it threw.
	 */
	repair?: (lock: L) => void;
}

export type MutexOptions = LockOptions<Mutex>;

export interface MutexKind extends MutexOptions {
	/** Handed over in order. Not with robust. */
	fair?: boolean;
	/** If its owner, a thread, dies, the next one repairs what it guards. */
	robust?: boolean;
	/** Owners are checked: codes EDEADLK and EPERM. */
	errorcheck?: boolean;
}

/** A memwait_mutex_t. Zeroed memory is an unlocked one. */
export class Mutex extends Lock {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number, kind?: MutexKind): Mutex;
	constructor(memory: SharedMemory, byteOffset?: number, options?: MutexOptions);
}

export type RWLockOptions = LockOptions<Side>;

export interface RWLockKind extends RWLockOptions {
	/** In the order of waiting. Not with the others. */
	fair?: boolean;
	/**
	 * If a writer, a thread, dies, the next one repairs what it guards. A reader that dies
	 * stays one.
	 */
	robust?: boolean;
	/** The first writer that waits precedes later readers. Otherwise readers are preferred. */
	preferWriter?: boolean;
}

/** A memwait_rwlock_t: many have its reader, or one its writer. Zeroed memory is unlocked. */
export class RWLock extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number, kind?: RWLockKind): RWLock;
	constructor(memory: SharedMemory, byteOffset?: number, options?: RWLockOptions);
	readonly reader: Side;
	readonly writer: Side;
}

/** A memwait_cond_t. Zeroed memory is one. */
export class Condition extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number): Condition;
	constructor(memory: SharedMemory, byteOffset?: number);
	/**
	 * false: the time has passed. The mutex is locked when it returns, after an abort, and after
	 * the timeout of a script. Code EPERM: it was not locked. It is not after codes EOWNERDEAD and
	 * ENOTRECOVERABLE or an error of repair, and may not be after others, such as ENOMEM and ENOSPC.
	 */
	wait(mutex: Mutex, options?: Options): Promise<boolean>;
	waitSync(mutex: Mutex, options?: BlockingOptions): boolean;
	notify(count?: number): void;
	notifyAll(): void;
}

/** A memwait_sem_t. Zeroed memory is one of value 0. */
export class Semaphore extends SharedObject {
	static readonly SIZE: number;
	/** fair: a release is for whoever has waited longest. Its value is 32767 at most. */
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
 * A memwait_barrier_t, at which parties meet. One that leaves, by a timeout, code ETIMEDOUT, or a
 * signal, has not come. No more than parties may be there at a time. It must be made by init().
 */
export class Barrier extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset: number, parties: number): Barrier;
	constructor(memory: SharedMemory, byteOffset?: number);
	/**
	 * true for one of those that have met. Code EPIPE: it was aborted or reset. A party in Python
	 * that times out aborts it.
	 */
	wait(options?: Options): Promise<boolean>;
	waitSync(options?: BlockingOptions): boolean;
	/** EPIPE for all that wait, and all that come before a reset. */
	abort(): void;
	/** EPIPE for all that wait. Those that come then meet. */
	reset(): void;
}

/** A memwait_waitgroup_t: a count, and waits until it is 0. Zeroed memory is one of count 0. */
export class WaitGroup extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number, count?: number): WaitGroup;
	constructor(memory: SharedMemory, byteOffset?: number);
	/** Code EINVAL: it would be negative. Code EOVERFLOW: it would be above 2^30 - 1. */
	add(count?: number): void;
	/** add(-1) */
	done(): void;
	/** false: the time has passed. */
	wait(options?: Options): Promise<boolean>;
	waitSync(options?: BlockingOptions): boolean;
}

/**
 * A flag, and those who wait for it: C's memwait_event_t. Aligned to 4 bytes. Zeroed memory is one
 * that is not set.
 */
export class Event extends SharedObject {
	static readonly SIZE: number;
	static init(memory: SharedMemory, byteOffset?: number): Event;
	constructor(memory: SharedMemory, byteOffset?: number);
	/** Wakes all. */
	set(): void;
	/** Who waits from here on waits for the next set(). */
	clear(): void;
	isSet(): boolean;
	/** false: the time has passed. */
	wait(options?: Options): Promise<boolean>;
	waitSync(options?: BlockingOptions): boolean;
}

/** A memwait_channel_t: a bounded queue of items of one size. Code EPIPE: closed. */
export class Channel extends SharedObject implements AsyncIterable<Uint8Array> {
	/** In bytes. */
	static size(itemSize: number, capacity: number): number;
	static init(memory: SharedMemory, byteOffset: number, itemSize: number, capacity: number): Channel;
	/** Of a channel that is there. */
	constructor(memory: SharedMemory, byteOffset?: number);
	readonly itemSize: number;
	readonly length: number;
	send(item: ArrayBufferView, options?: Options): Promise<void>;
	sendSync(item: ArrayBufferView, options?: BlockingOptions): void;
	trySend(item: ArrayBufferView): boolean;
	recv(options?: Options): Promise<Uint8Array>;
	recvSync(options?: BlockingOptions): Uint8Array;
	tryRecv(): Uint8Array | undefined;
	/** What was sent can be received. */
	close(): void;
	/** Until it is closed and empty. */
	[Symbol.asyncIterator](): AsyncIterator<Uint8Array>;
}
