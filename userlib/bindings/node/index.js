// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
'use strict';
/*
 * memwait for Node.js: see README.md and index.d.ts. This file checks arguments; memwait.c does the
 * rest.
 */
const fs = require('fs');
const path = require('path');
const { constants } = require('buffer');
const { performance } = require('perf_hooks');
const { inspect } = require('util');
const { isBigInt64Array, isInt32Array, isSharedArrayBuffer } = require('util').types;

// Built by make, next to this file, or by npm.
const addon = fs.existsSync(path.join(__dirname, 'memwait.node'))
	? path.join(__dirname, 'memwait.node') : path.join(__dirname, 'build/Release/memwait.node');

// Load the addon once for each thread, even if a test runner empties require.cache: an addon cannot
// be unloaded, and each time it is loaded it opens two descriptors of the device.
const loaded = Symbol.for(addon);
if (!process[loaded])
	Object.defineProperty(process, loaded, { value: require(addon) });
const native = process[loaded];

// The same values as in memwait.c.
const LOCK = 0, WAIT = 1, ACQUIRE = 2, SEND = 3, RECV = 4, READ = 5, WRITE = 6, MEET = 7, ZERO = 8,
	SET = 9;
const MUTEX = 0, COND = 1, SEM = 2, CHANNEL = 3, RWLOCK = 4, BARRIER = 5, WAITGROUP = 6, EVENT = 7;

// The same values as in memwait.h.
const FAIR = 0x4;
const MUTEX_FLAGS = { errorcheck: 0x2, fair: FAIR, robust: 0x8 };
const RWLOCK_FLAGS = { fair: FAIR, robust: 0x8, preferWriter: 0x10 };
const WAITGROUP_MAX = 0x3fffffff;

function getter(prototype, name)
{
	const { get } = Object.getOwnPropertyDescriptor(prototype, name);
	return (object) => Reflect.apply(get, object, []);
}

// The errors that Node's own functions throw for bad arguments. The functions for words throw the
// engine's errors, which have no code.

function wrongType(text)
{
	return Object.assign(new TypeError(text), { code: 'ERR_INVALID_ARG_TYPE' });
}

function outOfRange(text)
{
	return Object.assign(new RangeError(text), { code: 'ERR_OUT_OF_RANGE' });
}

function checkNumber(value, name)
{
	if (typeof value !== 'number' || Number.isNaN(value))
		throw wrongType(`${name} must be a number`);
}

function checkInteger(value, name)
{
	if (typeof value !== 'number')
		throw wrongType(`${name} must be a number`);
	if (!Number.isSafeInteger(value) || value < 0)
		throw outOfRange(`${name} must be an integer >= 0`);
}

// Checks that a number fits an unsigned int of C.
function checkCount(value, name, most = 0xffffffff)
{
	checkInteger(value, name);
	if (value > most)
		throw outOfRange(`${name} must be at most ${most}`);
}

function checkOptions(options = {})
{
	if (typeof options !== 'object' || options === null || Array.isArray(options))
		throw wrongType('options must be an object');
	return options;
}

// These getters are taken from the prototype, because a program may override the getters of its
// objects.
const TypedArray = Object.getPrototypeOf(Int32Array.prototype);
const bufferOf = getter(TypedArray, 'buffer');
const lengthOf = getter(TypedArray, 'length');
const { keys } = TypedArray;

// Memory

// For each buffer from map(), the object that holds its mapping, even if the buffer is detached.
const mappings = new WeakMap();

// Returns undefined if the buffer is not in shared memory.
function keeperOf(buffer)
{
	return mappings.get(buffer) ?? (isSharedArrayBuffer(buffer) ? buffer : undefined);
}

function checkSize(size)
{
	checkInteger(size, 'size');
	if (size === 0)
		throw outOfRange('size must not be 0');
}

// Returns a descriptor, and whether the file was created. First tries without O_CREAT: in a sticky
// directory Linux refuses that flag for another user's file (fs.protected_regular).
function openFile(path)
{
	const { O_RDWR, O_CREAT, O_EXCL } = fs.constants;
	for (;;) {
		try {
			return [fs.openSync(path, O_RDWR), false];
		} catch (error) {
			if (error.code !== 'ENOENT')
				throw error;
		}
		try {
			return [fs.openSync(path, O_RDWR | O_CREAT | O_EXCL, 0o600), true];
		} catch (error) {
			if (error.code !== 'EEXIST')
				throw error;
		}
	}
}

function map(target, size)
{
	checkSize(size);
	// Node.js would also throw, but would unmap the memory itself.
	if (size > constants.MAX_LENGTH)
		throw outOfRange('size is larger than any buffer');
	let fd = target, made = false;
	if (typeof target !== 'number')
		[fd, made] = openFile(target);
	else if (!Number.isInteger(fd) || fd < 0 || fd > 0x7fffffff)
		throw outOfRange('a descriptor must be an integer >= 0');
	try {
		const [buffer, mapping] = native.map(fd, size);
		mappings.set(buffer, mapping);
		return buffer;
	} catch (error) {
		if (made)
			fs.unlinkSync(target);
		throw error;
	} finally {
		if (fd !== target)
			fs.closeSync(fd);
	}
}

function memfd(size)
{
	checkSize(size);
	return native.memfd(size);
}

function available()
{
	try {
		native.available();
		return true;
	} catch {
		return false;
	}
}

// Words: the names and steps are those of ECMAScript's specification.

function toIntegerOrInfinity(value)
{
	const number = Math.trunc(value);
	return Number.isNaN(number) ? 0 : number;
}

function validateAtomicAccess(typedArray, requestIndex)
{
	const length = lengthOf(typedArray);
	const index = toIntegerOrInfinity(requestIndex);
	if (index < 0 || index >= length)
		throw new RangeError('index out of range');
	return index;
}

function validateWaitable(typedArray)
{
	if (!isInt32Array(typedArray) && !isBigInt64Array(typedArray))
		throw new TypeError('not an Int32Array or BigInt64Array');
	// Throws if the buffer is detached, or the view is out of bounds.
	if (lengthOf(typedArray) === 0)
		Reflect.apply(keys, typedArray, []);
}

function doWait(typedArray, index, value, timeout, keeps)
{
	validateWaitable(typedArray);
	const keeper = keeperOf(bufferOf(typedArray));
	if (keeper === undefined)
		throw new TypeError('the memory is not shared');
	const i = validateAtomicAccess(typedArray, index);
	const v = isBigInt64Array(typedArray) ? BigInt.asIntN(64, value) : value | 0;
	const q = +timeout;
	const t = Number.isNaN(q) ? Infinity : Math.max(q, 0);
	const result = native.waitWord(typedArray, i, v, t, keeps ? keeper : undefined);
	// A timeout may pass before the wait begins, but only a timeout of 0 may end synchronously.
	return keeps && t > 0 && result === 'timed-out' ? Promise.resolve(result) : result;
}

// Defined as methods, because the engine's functions are not constructors either.
const { wait, waitAsync, notify } = {
	wait(typedArray, index, value, timeout) {
		return doWait(typedArray, index, value, timeout, false);
	},

	waitAsync(typedArray, index, value, timeout) {
		const result = doWait(typedArray, index, value, timeout, true);
		return { async: typeof result !== 'string', value: result };
	},

	notify(typedArray, index, count) {
		validateWaitable(typedArray);
		const i = validateAtomicAccess(typedArray, index);
		const c = count === undefined ? Infinity : Math.max(toIntegerOrInfinity(count), 0);
		// Memory that is not shared has no waiters.
		if (keeperOf(bufferOf(typedArray)) === undefined)
			return 0;
		return native.notify(typedArray, i, c);
	},
};

// The engine's Atomics, but with these three functions in place of the engine's.
const Atomics = Object.create(Object.prototype,
	Object.getOwnPropertyDescriptors(globalThis.Atomics));
for (const value of [wait, waitAsync, notify]) {
	Object.defineProperty(Atomics, value.name,
		{ value, writable: true, enumerable: false, configurable: true });
}

function waiters(typedArray, index)
{
	checkNumber(index, 'index');
	if (!(typedArray instanceof Uint8Array))
		validateWaitable(typedArray);
	if (keeperOf(bufferOf(typedArray)) === undefined)
		throw new TypeError('the memory is not shared');
	return native.waiters(typedArray, validateAtomicAccess(typedArray, index));
}

// Objects

// The method that returns the state that inspect() shows.
const state = Symbol('state');
let nativeOf;

class SharedObject {
	#native;
	#keeper;
	#byteOffset;

	// memory: a buffer, or a view of a buffer; the object must lie within it.
	constructor(kind, memory, byteOffset = 0) {
		const isView = ArrayBuffer.isView(memory);
		const buffer = isView ? memory.buffer : memory;
		this.#keeper = keeperOf(buffer);
		if (this.#keeper === undefined)
			throw wrongType('memory must be from map() or a SharedArrayBuffer');
		checkInteger(byteOffset, 'byteOffset');
		if (byteOffset > memory.byteLength)
			throw outOfRange('byteOffset is beyond the end of the memory');
		this.#byteOffset = byteOffset + (isView ? memory.byteOffset : 0);
		this.#native = native.object(new Uint8Array(buffer, this.#byteOffset,
							     memory.byteLength - byteOffset), kind);
	}

	// Throws EBUSY if the object is in use.
	destroy() {
		native.destroy(this.#native);
	}

	[state]() {
		return {};
	}

	[inspect.custom](depth, options, inspect) {
		// The prototype is not an object of this class.
		if (!(#native in this))
			return inspect(this, { ...options, customInspect: false });
		const { name } = this.constructor;
		if (depth < 0)
			return options.stylize(`[${name}]`, 'special');
		const shown = { byteOffset: this.#byteOffset };
		try {
			Object.assign(shown, this[state]());
			shown.waiters = native.objectWaiters(this.#native);
		} catch ({ code }) {
			// For example, the channel was destroyed, or there is no device.
			shown.error = code;
		}
		return `${name} ${inspect(shown, options)}`;
	}

	static {
		nativeOf = (object) => object.#native;
	}
}

// Returns the flags of the @names that are true in @options.
function flagsOf(names, options)
{
	const checked = checkOptions(options);
	let flags = 0;
	for (const [name, flag] of Object.entries(names)) {
		const { [name]: value = false } = checked;
		if (typeof value !== 'boolean')
			throw wrongType(`${name} must be true or false`);
		flags |= value ? flag : 0;
	}
	return flags;
}

// The reverse: returns the names of the flags of an object.
function namesOf(names, object)
{
	const flags = native.flags(nativeOf(object));
	return Object.fromEntries(Object.entries(names).filter(([, flag]) => flags & flag)
		.map(([name]) => [name, true]));
}

function timeoutOf({ timeout = Infinity })
{
	if (typeof timeout !== 'number' || Number.isNaN(timeout))
		throw wrongType('timeout must be a number of milliseconds');
	return Math.max(timeout, 0);
}

// Returns [timeout, signal], each read once. Throws if the signal has already been aborted.
function readOptions(options)
{
	const checked = checkOptions(options);
	const timeout = timeoutOf(checked);
	const { signal } = checked;
	if (signal !== undefined) {
		// A signal from another realm or from a library is accepted.
		for (const name of ['throwIfAborted', 'addEventListener', 'removeEventListener']) {
			if (typeof signal?.[name] !== 'function')
				throw wrongType('signal must be an AbortSignal');
		}
		signal.throwIfAborted();
	}
	return [timeout, signal];
}

// Returns the result, or a promise of it. @users: objects that must stay alive while the operation
// is pending.
function begin(call, object, [timeout, signal], extra, users = object)
{
	const result = native.waitObject(call, nativeOf(object), timeout, extra, users,
					 signal !== undefined);
	if (!Array.isArray(result))
		return result;
	const [promise, handle] = result;
	const abort = () => native.cancel(handle, signal.reason);
	const forget = () => signal.removeEventListener('abort', abort);
	signal.addEventListener('abort', abort);
	promise.then(forget, forget);
	return promise;
}

// Returns the timeout of a blocking wait.
function readBlocking(options)
{
	const checked = checkOptions(options);
	const timeout = timeoutOf(checked);
	// The thread could not observe the signal.
	if (checked.signal !== undefined)
		throw wrongType('a blocking function takes no signal');
	return timeout;
}

// @users: as in begin(). Objects that are not arguments of the call could be garbage-collected
// while it blocks.
function block(call, object, timeout, extra, users = object)
{
	return native.waitObject(call, nativeOf(object), timeout, extra, undefined, false, users);
}

let drop;

// Releases a lock or a permit, once. Does nothing if a wait has left the mutex unlocked.
class Guard {
	#undo;

	constructor(undo) {
		this.#undo = undo;
	}

	release() {
		const undo = this.#undo;
		this.#undo = undefined;
		undo?.();
	}

	static {
		drop = (guard) => {
			if (guard)
				guard.#undo = undefined;
		};
	}
}

// Older versions of Node.js have neither these symbols nor `using`.
if (Symbol.dispose) {
	Object.defineProperties(Guard.prototype, {
		[Symbol.dispose]: { value: Guard.prototype.release, writable: true,
				    configurable: true },
		[Symbol.asyncDispose]: { async value() { this.release(); }, writable: true,
					 configurable: true },
	});
}

let acquired, guardOf, setGuard;

// A Mutex, or the reader or writer of an RWLock. #guard is the guard of the exclusive holder.
class Lock extends SharedObject {
	#call;
	#repair;
	#guard;

	constructor(kind, call, memory, byteOffset, options) {
		super(kind, memory, byteOffset);
		this.#call = call;
		this.#repair = checkOptions(options).repair;
		if (this.#repair !== undefined && typeof this.#repair !== 'function')
			throw wrongType('repair must be a function');
	}

	// Returns false if a reader got the lock for writing, to repair it, and must now lock it
	// for reading.
	#isLocked(died) {
		acquired(this, died);
		if (!died || this.#call !== READ)
			return true;
		native.undo(READ, nativeOf(this));
		return false;
	}

	#granted() {
		const guard = new Guard(() => this.unlock());
		if (this.#call !== READ)
			this.#guard = guard;
		return guard;
	}

	async lock(options) {
		const [timeout, signal] = readOptions(options);
		const end = performance.now() + timeout;
		let left = timeout;
		while (!this.#isLocked(await begin(this.#call, this, [left, signal]))) {
			signal?.throwIfAborted();
			left = Math.max(end - performance.now(), 0);
		}
		return this.#granted();
	}

	lockSync(options) {
		const timeout = readBlocking(options);
		const end = performance.now() + timeout;
		let left = timeout;
		while (!this.#isLocked(block(this.#call, this, left)))
			left = Math.max(end - performance.now(), 0);
		return this.#granted();
	}

	tryLock() {
		let died;
		do {
			died = native.tryObject(this.#call, nativeOf(this));
			if (died === false)
				return false;
		} while (!this.#isLocked(died));
		this.#granted();
		return true;
	}

	unlock() {
		native.undo(this.#call, nativeOf(this));
		drop(this.#guard);
		this.#guard = undefined;
	}

	async withLock(callback, options) {
		if (typeof callback !== 'function')
			throw wrongType('callback must be a function');
		const guard = await this.lock(options);
		try {
			return await callback();
		} finally {
			guard.release();
		}
	}

	/*
	 * The caller holds the lock. @died: the last owner died while it held the lock. If the
	 * repair fails, the lock is unlocked, and every later user gets ENOTRECOVERABLE.
	 */
	static #acquired(lock, died) {
		if (!died)
			return;
		try {
			if (lock.#repair === undefined) {
				const text = 'the owner of the lock died, and there is no ' +
					     'repair function';
				throw Object.assign(new Error(text), { code: 'EOWNERDEAD' });
			}
			if (typeof lock.#repair(lock)?.then === 'function')
				throw new TypeError('repair must be synchronous');
			native.mend(lock.#call, nativeOf(lock));
		} catch (error) {
			native.undo(lock.#call, nativeOf(lock));
			throw error;
		}
	}

	static {
		acquired = Lock.#acquired;
		guardOf = (lock) => lock.#guard;
		setGuard = (lock, guard) => {
			lock.#guard = guard;
		};
	}
}

function checkMutex(mutex)
{
	if (!(mutex instanceof Mutex))
		throw wrongType('not a Mutex');
}

class Mutex extends Lock {
	constructor(memory, byteOffset = 0, options = undefined) {
		super(MUTEX, LOCK, memory, byteOffset, options);
	}

	static init(memory, byteOffset = 0, options = {}) {
		const mutex = new Mutex(memory, byteOffset, options);
		native.init(nativeOf(mutex), flagsOf(MUTEX_FLAGS, options));
		return mutex;
	}

	[state]() {
		const kind = namesOf(MUTEX_FLAGS, this);
		// A mutex that checks owners reports only whether this thread holds it.
		const name = kind.robust || kind.errorcheck ? 'lockedByThisThread' : 'locked';
		return { ...kind, [name]: native.isHeld(nativeOf(this)) };
	}
}

class Side extends Lock {
	[state]() {
		return namesOf(RWLOCK_FLAGS, this);
	}
}

class RWLock extends SharedObject {
	#reader;
	#writer;

	constructor(memory, byteOffset = 0, options = undefined) {
		super(RWLOCK, memory, byteOffset);
		this.#reader = new Side(RWLOCK, READ, memory, byteOffset, options);
		this.#writer = new Side(RWLOCK, WRITE, memory, byteOffset, options);
	}

	static init(memory, byteOffset = 0, options = {}) {
		const rwlock = new RWLock(memory, byteOffset, options);
		native.init(nativeOf(rwlock), flagsOf(RWLOCK_FLAGS, options));
		return rwlock;
	}

	get reader() {
		return this.#reader;
	}

	get writer() {
		return this.#writer;
	}

	[state]() {
		return namesOf(RWLOCK_FLAGS, this);
	}
}

class Condition extends SharedObject {
	constructor(buffer, byteOffset = 0) {
		super(COND, buffer, byteOffset);
	}

	static init(buffer, byteOffset = 0) {
		const condition = new Condition(buffer, byteOffset);
		native.init(nativeOf(condition));
		return condition;
	}

	async wait(mutex, options) {
		checkMutex(mutex);
		// An error before the wait begins leaves the mutex locked: do not lock it again.
		const [timeout, signal] = readOptions(options);
		// During the wait, other holders set their own guards.
		const guard = guardOf(mutex);
		let promise, died;
		try {
			promise = begin(WAIT, this, [timeout, signal], nativeOf(mutex),
					[this, mutex]);
			died = await promise;
		} catch (error) {
			// A cancelled wait has not locked the mutex, but the caller will unlock it.
			if (signal?.aborted && error === signal.reason) {
				try {
					await mutex.lock();
				} catch (other) {
					drop(guard);
					throw other;
				}
			} else if (promise && error?.code !== 'ETIMEDOUT') {
				drop(guard);
				throw error;
			}
			setGuard(mutex, guard);
			if (error?.code === 'ETIMEDOUT' && error !== signal?.reason)
				return false;
			throw error;
		}
		Condition.#woken(mutex, guard, died);
		return true;
	}

	waitSync(mutex, options) {
		checkMutex(mutex);
		const guard = guardOf(mutex);
		let died;
		try {
			died = block(WAIT, this, readBlocking(options), nativeOf(mutex),
				     [this, mutex]);
			// An error that is returned, not thrown, means that the mutex is not
			// locked.
			if (typeof died === 'object') {
				drop(guard);
				throw died;
			}
		} catch (error) {
			if (error?.code === 'ETIMEDOUT')
				return false;
			throw error;
		}
		Condition.#woken(mutex, guard, died);
		return true;
	}

	static #woken(mutex, guard, died) {
		try {
			acquired(mutex, died);
		} catch (error) {
			drop(guard);
			throw error;
		}
		setGuard(mutex, guard);
	}

	notify(count = 1) {
		checkNumber(count, 'count');
		native.signal(nativeOf(this), Math.max(toIntegerOrInfinity(count), 0));
	}

	notifyAll() {
		native.signal(nativeOf(this), Infinity);
	}
}

class Semaphore extends SharedObject {
	constructor(buffer, byteOffset = 0) {
		super(SEM, buffer, byteOffset);
	}

	static init(buffer, byteOffset = 0, value = 0, options = {}) {
		const semaphore = new Semaphore(buffer, byteOffset);
		checkCount(value, 'value');
		native.init(nativeOf(semaphore), flagsOf({ fair: FAIR }, options), value);
		return semaphore;
	}

	async acquire(options) {
		await begin(ACQUIRE, this, readOptions(options));
		return new Guard(() => this.release());
	}

	acquireSync(options) {
		block(ACQUIRE, this, readBlocking(options));
		return new Guard(() => this.release());
	}

	tryAcquire() {
		return native.tryObject(ACQUIRE, nativeOf(this)) !== false;
	}

	release() {
		native.undo(ACQUIRE, nativeOf(this));
	}

	get value() {
		return native.semValue(nativeOf(this));
	}

	[state]() {
		return { value: this.value };
	}
}

class Barrier extends SharedObject {
	constructor(memory, byteOffset = 0) {
		super(BARRIER, memory, byteOffset);
	}

	static init(memory, byteOffset, parties) {
		checkCount(parties, 'parties');
		if (parties === 0)
			throw outOfRange('parties must not be 0');
		const barrier = new Barrier(memory, byteOffset);
		native.init(nativeOf(barrier), 0, parties);
		return barrier;
	}

	async wait(options) {
		return begin(MEET, this, readOptions(options));
	}

	waitSync(options) {
		return block(MEET, this, readBlocking(options));
	}

	abort() {
		native.breakBarrier(nativeOf(this), false);
	}

	reset() {
		native.breakBarrier(nativeOf(this), true);
	}
}

// Returns false for a timeout. Rethrows every other error, including the reason for an abort.
function timedOut(error, signal)
{
	if (error?.code === 'ETIMEDOUT' && !(signal?.aborted && error === signal.reason))
		return false;
	throw error;
}

class WaitGroup extends SharedObject {
	constructor(memory, byteOffset = 0) {
		super(WAITGROUP, memory, byteOffset);
	}

	static init(memory, byteOffset = 0, count = 0) {
		checkCount(count, 'count', WAITGROUP_MAX);
		const group = new WaitGroup(memory, byteOffset);
		native.init(nativeOf(group), 0, count);
		return group;
	}

	add(count = 1) {
		if (typeof count !== 'number')
			throw wrongType('count must be a number');
		if (!Number.isInteger(count) || count !== (count | 0))
			throw outOfRange('count must be an integer of 32 bits');
		native.add(nativeOf(this), count);
	}

	done() {
		this.add(-1);
	}

	async wait(options) {
		const [timeout, signal] = readOptions(options);
		try {
			await begin(ZERO, this, [timeout, signal]);
		} catch (error) {
			return timedOut(error, signal);
		}
		return true;
	}

	waitSync(options) {
		try {
			block(ZERO, this, readBlocking(options));
		} catch (error) {
			return timedOut(error);
		}
		return true;
	}

	[state]() {
		return { done: this.waitSync({ timeout: 0 }) };
	}
}

class Event extends SharedObject {
	constructor(memory, byteOffset = 0) {
		super(EVENT, memory, byteOffset);
	}

	static init(memory, byteOffset = 0) {
		const event = new Event(memory, byteOffset);
		native.init(nativeOf(event), 0);
		return event;
	}

	set() {
		native.change(nativeOf(this), true);
	}

	clear() {
		native.change(nativeOf(this), false);
	}

	isSet() {
		return native.isSet(nativeOf(this));
	}

	async wait(options) {
		const [timeout, signal] = readOptions(options);
		try {
			await begin(SET, this, [timeout, signal]);
		} catch (error) {
			return timedOut(error, signal);
		}
		return true;
	}

	waitSync(options) {
		try {
			block(SET, this, readBlocking(options));
		} catch (error) {
			return timedOut(error);
		}
		return true;
	}

	[state]() {
		return { set: this.isSet() };
	}
}

class Channel extends SharedObject {
	#itemSize;

	constructor(buffer, byteOffset = 0) {
		super(CHANNEL, buffer, byteOffset);
		this.#itemSize = native.itemSize(nativeOf(this));
	}

	static init(buffer, byteOffset, itemSize, capacity) {
		Channel.size(itemSize, capacity);
		const memory = new SharedObject(CHANNEL, buffer, byteOffset);
		native.init(nativeOf(memory), itemSize, capacity);
		return new Channel(buffer, byteOffset);
	}

	static size(itemSize, capacity) {
		checkInteger(itemSize, 'itemSize');
		checkInteger(capacity, 'capacity');
		return native.channelSize(itemSize, capacity);
	}

	get itemSize() {
		return this.#itemSize;
	}

	#bytes(item) {
		if (!ArrayBuffer.isView(item))
			throw wrongType('an item must be a view of a buffer');
		if (item.byteLength !== this.#itemSize)
			throw outOfRange(`an item must have ${this.#itemSize} bytes`);
		return new Uint8Array(item.buffer, item.byteOffset, item.byteLength);
	}

	async send(item, options) {
		await begin(SEND, this, readOptions(options), this.#bytes(item));
	}

	sendSync(item, options) {
		block(SEND, this, readBlocking(options), this.#bytes(item));
	}

	trySend(item) {
		return native.tryObject(SEND, nativeOf(this), this.#bytes(item)) !== false;
	}

	async recv(options) {
		return begin(RECV, this, readOptions(options));
	}

	recvSync(options) {
		return block(RECV, this, readBlocking(options));
	}

	tryRecv() {
		return native.tryObject(RECV, nativeOf(this)) || undefined;
	}

	async *[Symbol.asyncIterator]() {
		try {
			for (;;)
				yield await this.recv();
		} catch (error) {
			if (error?.code !== 'EPIPE')
				throw error;
		}
	}

	close() {
		native.close(nativeOf(this));
	}

	get length() {
		return native.channelLength(nativeOf(this));
	}

	[state]() {
		return { itemSize: native.itemSize(nativeOf(this)), length: this.length };
	}
}

for (const [Class, size] of [[Mutex, 40], [Condition, 48], [Semaphore, 32], [RWLock, 56],
			     [Barrier, 32], [WaitGroup, 32], [Event, 4]])
	Object.defineProperty(Class, 'SIZE', { value: size, enumerable: true });

// `import` finds the names only if they are written as shorthand properties, without spread syntax.
module.exports = {
	map, memfd, available, waiters, Atomics, wait, waitAsync, notify, Mutex, RWLock, Condition,
	Semaphore, Barrier, WaitGroup, Event, Channel,
};
