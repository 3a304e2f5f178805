// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
'use strict';
/*
 * memwait for Node: see README.md and index.d.ts. What programs pass is checked here; memwait.c has
 * the rest.
 */
const fs = require('fs');
const path = require('path');
const { constants } = require('buffer');
const { isBigInt64Array, isInt32Array, isSharedArrayBuffer } = require('util').types;

// Built by make beside this file, or by npm.
const native = fs.existsSync(path.join(__dirname, 'memwait.node'))
	? require('./memwait.node') : require('./build/Release/memwait.node');

// As in memwait.c.
const LOCK = 0, WAIT = 1, ACQUIRE = 2, SEND = 3, RECV = 4;
const MUTEX = 0, COND = 1, SEM = 2, CHANNEL = 3;

// As in memwait.h.
const ERRORCHECK = 0x2, FAIR = 0x4, ROBUST = 0x8;

function getter(prototype, name)
{
	const { get } = Object.getOwnPropertyDescriptor(prototype, name);
	return (object) => Reflect.apply(get, object, []);
}

// As Node's own of bad arguments. Words have those of the engine, which have no code.

function wrongType(text)
{
	return Object.assign(new TypeError(text), { code: 'ERR_INVALID_ARG_TYPE' });
}

function outOfRange(text)
{
	return Object.assign(new RangeError(text), { code: 'ERR_OUT_OF_RANGE' });
}

function checkInteger(value, name)
{
	if (typeof value !== 'number')
		throw wrongType(`${name} must be a number`);
	if (!Number.isSafeInteger(value) || value < 0)
		throw outOfRange(`${name} must be an integer from 0`);
}

function checkOptions(options = {})
{
	if (typeof options !== 'object' || options === null || Array.isArray(options))
		throw wrongType('options must be an object');
	return options;
}

// What a program may override is not asked.
const TypedArray = Object.getPrototypeOf(Int32Array.prototype);
const bufferOf = getter(TypedArray, 'buffer');
const lengthOf = getter(TypedArray, 'length');
const { keys } = TypedArray;

// Memory

// The buffers of map(): what keeps the mapping of each, also when the buffer is detached.
const mappings = new WeakMap();

// Undefined: the buffer is not in shared memory.
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

function map(target, size)
{
	checkSize(size);
	// Node would throw, too, but end the mapping by itself.
	if (size > constants.MAX_LENGTH)
		throw outOfRange('size is larger than any buffer');
	let fd = target;
	if (typeof target !== 'number')
		fd = fs.openSync(target, fs.constants.O_RDWR | fs.constants.O_CREAT, 0o600);
	else if (!Number.isInteger(fd) || fd < 0 || fd > 0x7fffffff)
		throw outOfRange('a descriptor must be an integer from 0');
	try {
		const [buffer, mapping] = native.map(fd, size);
		mappings.set(buffer, mapping);
		return buffer;
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

// Words: names and steps are those of ECMAScript's specification.

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
	// Throws if it is detached, or out of bounds.
	if (lengthOf(typedArray) === 0)
		Reflect.apply(keys, typedArray, []);
}

function doWait(typedArray, index, value, timeout, keeps)
{
	validateWaitable(typedArray);
	const keeper = keeperOf(bufferOf(typedArray));
	if (keeper === undefined)
		throw new TypeError('not in shared memory');
	const i = validateAtomicAccess(typedArray, index);
	const v = isBigInt64Array(typedArray) ? BigInt.asIntN(64, value) : value | 0;
	const q = +timeout;
	const t = Number.isNaN(q) ? Infinity : Math.max(q, 0);
	const result = native.waitWord(typedArray, i, v, t, keeps ? keeper : undefined);
	// A time may be over before the wait has begun, but only 0 is for that to be said at once.
	return keeps && t > 0 && result === 'timed-out' ? Promise.resolve(result) : result;
}

// Methods, as those of the engine are: no constructors.
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
		// Nothing can wait in memory that is not shared.
		if (keeperOf(bufferOf(typedArray)) === undefined)
			return 0;
		return native.notify(typedArray, i, c);
	},
};

// The engine's, with these three instead of its own.
const Atomics = Object.create(Object.prototype,
	Object.getOwnPropertyDescriptors(globalThis.Atomics));
for (const value of [wait, waitAsync, notify]) {
	Object.defineProperty(Atomics, value.name,
		{ value, writable: true, enumerable: false, configurable: true });
}

function waiters(typedArray, index)
{
	if (!(typedArray instanceof Uint8Array))
		validateWaitable(typedArray);
	if (keeperOf(bufferOf(typedArray)) === undefined)
		throw new TypeError('not in shared memory');
	return native.waiters(typedArray, validateAtomicAccess(typedArray, index));
}

// Objects

let nativeOf;

class SharedObject {
	#native;
	#keeper;

	constructor(kind, buffer, byteOffset = 0) {
		this.#keeper = keeperOf(buffer);
		if (this.#keeper === undefined)
			throw wrongType('not a SharedArrayBuffer, and not from map()');
		checkInteger(byteOffset, 'byteOffset');
		if (byteOffset > buffer.byteLength)
			throw outOfRange('byteOffset is behind the buffer');
		this.#native = native.object(new Uint8Array(buffer, byteOffset), kind);
	}

	// EBUSY: it is in use.
	destroy() {
		native.destroy(this.#native);
	}

	static {
		nativeOf = (object) => object.#native;
	}
}

function timeoutOf({ timeout = Infinity })
{
	if (typeof timeout !== 'number' || Number.isNaN(timeout))
		throw wrongType('timeout must be a number of milliseconds');
	return Math.max(timeout, 0);
}

// [timeout, signal], each read once, of a wait that can be begun: the signal has not come yet.
function readOptions(options)
{
	const checked = checkOptions(options);
	const timeout = timeoutOf(checked);
	const { signal } = checked;
	if (signal !== undefined) {
		// Another realm's, or a library's, will do.
		for (const name of ['throwIfAborted', 'addEventListener', 'removeEventListener']) {
			if (typeof signal?.[name] !== 'function')
				throw wrongType('signal must be an AbortSignal');
		}
		signal.throwIfAborted();
	}
	return [timeout, signal];
}

// The result, or a promise of it. @users: what must stay while it is pending.
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

// @users: as above. What is not an argument of the call might be collected while it blocks.
function block(call, object, options, extra, users = object)
{
	const checked = checkOptions(options);
	const timeout = timeoutOf(checked);
	// The thread would not see it come.
	if (checked.signal !== undefined)
		throw wrongType('what blocks takes no signal');
	return native.waitObject(call, nativeOf(object), timeout, extra, undefined, false, users);
}

let acquired;

// Of an error after which a mutex is not locked: the mutex.
const unlocked = new WeakMap();

// Throws @error. @mutex is not locked.
function fail(mutex, error)
{
	if (Object(error) === error)
		unlocked.set(error, mutex);
	throw error;
}

function checkMutex(mutex)
{
	if (!(mutex instanceof Mutex))
		throw wrongType('not a Mutex');
}

class Mutex extends SharedObject {
	#repair;

	constructor(buffer, byteOffset = 0, options = undefined) {
		super(MUTEX, buffer, byteOffset);
		this.#repair = checkOptions(options).repair;
		if (this.#repair !== undefined && typeof this.#repair !== 'function')
			throw wrongType('repair must be a function');
	}

	static init(buffer, byteOffset = 0, options = {}) {
		const mutex = new Mutex(buffer, byteOffset, options);
		let kind = 0;
		for (const [name, flag] of [['fair', FAIR], ['robust', ROBUST],
					    ['errorcheck', ERRORCHECK]]) {
			const { [name]: value = false } = options;
			if (typeof value !== 'boolean')
				throw wrongType(`${name} must be true or false`);
			kind |= value ? flag : 0;
		}
		native.init(nativeOf(mutex), kind);
		return mutex;
	}

	async lock(options) {
		acquired(this, await begin(LOCK, this, readOptions(options)));
	}

	lockSync(options) {
		acquired(this, block(LOCK, this, options));
	}

	tryLock() {
		const result = native.tryObject(LOCK, nativeOf(this));
		if (result === false)
			return false;
		acquired(this, result);
		return true;
	}

	unlock() {
		native.unlock(nativeOf(this));
	}

	async withLock(callback, options) {
		if (typeof callback !== 'function')
			throw wrongType('callback must be a function');
		await this.lock(options);
		let result;
		try {
			result = await callback();
		} catch (error) {
			// Others may have it.
			if (unlocked.get(error) !== this)
				this.unlock();
			throw error;
		}
		this.unlock();
		return result;
	}

	/*
	 * The mutex is locked; @died: its owner has died with it. What nobody repairs is not
	 * used any more: everybody gets ENOTRECOVERABLE.
	 */
	static #acquired(mutex, died) {
		if (!died)
			return;
		try {
			if (mutex.#repair === undefined) {
				const text = 'the owner of the mutex has died, and there is no ' +
					     'repair function';
				throw Object.assign(new Error(text), { code: 'EOWNERDEAD' });
			}
			if (typeof mutex.#repair(mutex)?.then === 'function')
				throw new TypeError('repair must be synchronous');
			native.consistent(nativeOf(mutex));
		} catch (error) {
			native.unlock(nativeOf(mutex));
			fail(mutex, error);
		}
	}

	static {
		acquired = Mutex.#acquired;
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
		// Before the wait has begun the mutex is locked, and must not be locked again.
		const [timeout, signal] = readOptions(options);
		let promise, died;
		try {
			promise = begin(WAIT, this, [timeout, signal], nativeOf(mutex),
					[this, mutex]);
			died = await promise;
		} catch (error) {
			// A cancelled wait has not locked the mutex, which the caller unlocks.
			if (signal?.aborted && error === signal.reason)
				await mutex.lock().catch((other) => fail(mutex, other));
			else if (error?.code === 'ETIMEDOUT')
				return false;
			else if (promise)
				fail(mutex, error);
			throw error;
		}
		acquired(mutex, died);
		return true;
	}

	waitSync(mutex, options) {
		checkMutex(mutex);
		let died;
		try {
			died = block(WAIT, this, options, nativeOf(mutex), [this, mutex]);
		} catch (error) {
			if (error?.code === 'ENOTRECOVERABLE')
				fail(mutex, error);
			if (error?.code === 'ETIMEDOUT')
				return false;
			throw error;
		}
		acquired(mutex, died);
		return true;
	}

	notify(count = 1) {
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
		const { fair = false } = options;
		checkInteger(value, 'value');
		if (typeof fair !== 'boolean')
			throw wrongType('fair must be true or false');
		native.init(nativeOf(semaphore), value, fair ? FAIR : 0);
		return semaphore;
	}

	async acquire(options) {
		await begin(ACQUIRE, this, readOptions(options));
	}

	acquireSync(options) {
		block(ACQUIRE, this, options);
	}

	tryAcquire() {
		return native.tryObject(ACQUIRE, nativeOf(this)) !== false;
	}

	release() {
		native.post(nativeOf(this));
	}

	get value() {
		return native.semValue(nativeOf(this));
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
			throw outOfRange(`an item has ${this.#itemSize} bytes`);
		return new Uint8Array(item.buffer, item.byteOffset, item.byteLength);
	}

	async send(item, options) {
		await begin(SEND, this, readOptions(options), this.#bytes(item));
	}

	sendSync(item, options) {
		block(SEND, this, options, this.#bytes(item));
	}

	trySend(item) {
		return native.tryObject(SEND, nativeOf(this), this.#bytes(item)) !== false;
	}

	async recv(options) {
		return begin(RECV, this, readOptions(options));
	}

	recvSync(options) {
		return block(RECV, this, options);
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
}

for (const [Class, size] of [[Mutex, 40], [Condition, 48], [Semaphore, 32]])
	Object.defineProperty(Class, 'SIZE', { value: size, enumerable: true });

// Written so that import finds the names: shorthands, and nothing spread.
module.exports = {
	map, memfd, available, waiters, Atomics, wait, waitAsync, notify, Mutex, Condition, Semaphore,
	Channel,
};
