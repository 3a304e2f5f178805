// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// Tests of objects in one thread.
const { assert, buffer, file, limit, memwait, sleepers, test, until } = require('./harness');
const { Mutex, RWLock, Condition, Semaphore, Barrier, WaitGroup, Event, Channel } = memwait;
const { constants } = require('buffer');
const fs = require('fs');
const { inspect } = require('util');

const wrongType = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' };
const outOfRange = { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' };
const item = (n) => Uint8Array.of(n, 0, 0, n);

function aborted()
{
	const controller = new AbortController();
	controller.abort();
	return controller.signal;
}

test('objects: bad input', async () => {
	const classes = [Mutex, RWLock, Condition, Semaphore, Barrier, WaitGroup, Event];
	for (const Class of [...classes, Channel]) {
		for (const other of [undefined, null, 0, {}, 'x', new ArrayBuffer(64), Buffer.alloc(64),
				     new DataView(new ArrayBuffer(64)), [buffer]])
			assert.throws(() => new Class(other), wrongType);
		for (const offset of [1, 2, 1.5, -8, buffer.byteLength - 2, buffer.byteLength + 8, Infinity, NaN])
			assert.throws(() => new Class(buffer, offset), outOfRange);
		assert.throws(() => new Class(new Uint8Array(buffer, 0, 2)), outOfRange);
		assert.throws(() => new Class(new Uint8Array(buffer, 2)), outOfRange);
		if (Class !== Event)
			assert.throws(() => new Class(buffer, 4), outOfRange);
	}
	for (const Class of classes) {
		assert.ok(new Class(buffer, buffer.byteLength - Class.SIZE));
		assert.throws(() => new Class(buffer, buffer.byteLength - Class.SIZE + 8), outOfRange);
		assert.throws(() => Class.prototype.destroy.call({}), TypeError);
	}
	assert.throws(() => new Channel(buffer), { code: 'EINVAL' });
	for (const [size, capacity] of [[0, 1], [1, 0], [1.5, 1], [4, 2 ** 30 + 1], [2 ** 32, 1]]) {
		assert.throws(() => Channel.init(buffer, 0, size, capacity), outOfRange);
		assert.throws(() => Channel.size(size, capacity), outOfRange);
	}
	assert.throws(() => Channel.init(buffer, 0, 4, buffer.byteLength / 8), outOfRange);
	// This buffer has only the beginning of a channel.
	const size = Channel.size(8, 4);
	Channel.init(buffer, 0, 8, 4);
	const fd = memwait.memfd(size - 8);
	const short = memwait.map(fd, size - 8);
	fs.closeSync(fd);
	new Uint8Array(short).set(new Uint8Array(buffer, 0, size - 8));
	assert.throws(() => new Channel(short), { code: 'EINVAL' });
	const channel = Channel.init(buffer, 4096, 4, 2);
	for (const other of [undefined, 1, 'abcd', [1, 2, 3, 4], new ArrayBuffer(4)]) {
		await assert.rejects(channel.send(other), wrongType);
		assert.throws(() => channel.trySend(other), wrongType);
	}
	for (const length of [0, 3, 5])
		assert.throws(() => channel.sendSync(new Uint8Array(length)), outOfRange);
	assert.throws(() => Mutex.init(buffer, 0, { fair: true, robust: true }), { code: 'EINVAL' });
	assert.throws(() => Semaphore.init(buffer, 0, -1), outOfRange);
	assert.throws(() => Semaphore.init(buffer, 0, 2 ** 31), { code: 'EINVAL' });
	assert.throws(() => RWLock.init(buffer, 0, { fair: true, robust: true }), { code: 'EINVAL' });
	for (const parties of [0, -1, 1.5, 2 ** 32, NaN])
		assert.throws(() => Barrier.init(buffer, 0, parties), outOfRange);
	for (const count of [-1, 1.5, 2 ** 30])
		assert.throws(() => WaitGroup.init(buffer, 0, count), outOfRange);
	for (const count of [1.5, 2 ** 31, -(2 ** 31) - 1, NaN])
		assert.throws(() => new WaitGroup(buffer).add(count), outOfRange);
	const condition = Condition.init(buffer, 64);
	for (const other of [undefined, {}, Semaphore.init(buffer, 128), condition]) {
		await assert.rejects(condition.wait(other), { ...wrongType, message: 'not a Mutex' });
		assert.throws(() => condition.waitSync(other), { ...wrongType, message: 'not a Mutex' });
	}
});

test('objects: arguments of a wrong type, or in a wrong position', async () => {
	const mutex = Mutex.init(buffer, 0), condition = Condition.init(buffer, 64);
	const semaphore = Semaphore.init(buffer, 128), channel = Channel.init(buffer, 192, 4, 2);
	const rwlock = RWLock.init(buffer, 1024), barrier = Barrier.init(buffer, 1088, 2);
	const group = WaitGroup.init(buffer, 1152, 1), event = Event.init(buffer, 1216);
	// With valid arguments, each call would block or succeed.
	mutex.lockSync();
	const never = () => assert.fail('called');
	const waits = {
		'lock': (options) => mutex.lock(options),
		'withLock': (options) => mutex.withLock(never, options),
		'wait': (options) => condition.wait(mutex, options),
		'acquire': (options) => semaphore.acquire(options),
		'reader.lock': (options) => rwlock.reader.lock(options),
		'writer.lock': (options) => rwlock.writer.lock(options),
		'writer.withLock': (options) => rwlock.writer.withLock(never, options),
		'barrier.wait': (options) => barrier.wait(options),
		'group.wait': (options) => group.wait(options),
		'event.wait': (options) => event.wait(options),
		'send': (options) => channel.send(item(1), options),
		'recv': (options) => channel.recv(options),
	};
	const blocking = {
		'lockSync': (options) => mutex.lockSync(options),
		'waitSync': (options) => condition.waitSync(mutex, options),
		'acquireSync': (options) => semaphore.acquireSync(options),
		'reader.lockSync': (options) => rwlock.reader.lockSync(options),
		'writer.lockSync': (options) => rwlock.writer.lockSync(options),
		'barrier.waitSync': (options) => barrier.waitSync(options),
		'group.waitSync': (options) => group.waitSync(options),
		'event.waitSync': (options) => event.waitSync(options),
		'sendSync': (options) => channel.sendSync(item(1), options),
		'recvSync': (options) => channel.recvSync(options),
	};
	const others = {
		'Mutex': (options) => new Mutex(buffer, 0, options),
		'Mutex.init': (options) => Mutex.init(buffer, 0, options),
		'RWLock': (options) => new RWLock(buffer, 1024, options),
		'RWLock.init': (options) => RWLock.init(buffer, 1024, options),
	};
	const numbers = {
		'Mutex': (n) => new Mutex(buffer, n),
		'Mutex.init': (n) => Mutex.init(buffer, n),
		'Condition': (n) => new Condition(buffer, n),
		'Condition.init': (n) => Condition.init(buffer, n),
		'Semaphore': (n) => new Semaphore(buffer, n),
		'Semaphore.init': (n) => Semaphore.init(buffer, n),
		'Semaphore.init, value': (n) => Semaphore.init(buffer, 0, n),
		'RWLock': (n) => new RWLock(buffer, n),
		'Barrier': (n) => new Barrier(buffer, n),
		'Barrier.init': (n) => Barrier.init(buffer, n, 2),
		'Barrier.init, parties': (n) => Barrier.init(buffer, 1088, n),
		'WaitGroup': (n) => new WaitGroup(buffer, n),
		'WaitGroup.init, count': (n) => WaitGroup.init(buffer, 1152, n),
		'WaitGroup.add': (n) => group.add(n),
		'Event': (n) => new Event(buffer, n),
		'Event.init': (n) => Event.init(buffer, n),
		'Channel': (n) => new Channel(buffer, n),
		'Channel.init': (n) => Channel.init(buffer, n, 4, 2),
		'Channel.init, itemSize': (n) => Channel.init(buffer, 0, n, 2),
		'Channel.init, capacity': (n) => Channel.init(buffer, 0, 4, n),
		'Channel.size, itemSize': (n) => Channel.size(n, 2),
		'Channel.size, capacity': (n) => Channel.size(4, n),
		'map, size': (n) => memwait.map(file, n),
		'memfd': (n) => memwait.memfd(n),
	};
	// Atomics.notify() and wait() convert these arguments; the functions below do not.
	const plain = {
		'Condition.notify': (n) => condition.notify(n),
		'waiters, index': (n) => memwait.waiters(new Int32Array(buffer), n),
	};
	const bytes = () => new Uint8Array(buffer.slice(0, 2048));
	const before = bytes();
	const refused = (name, call, ...args) => {
		const shown = `${name}: ${args.map((arg) => inspect(arg))}`;
		if (name in waits || name === 'withLock, callback')
			return assert.rejects(call(...args), wrongType, shown);
		return assert.throws(() => call(...args), wrongType, shown);
	};
	for (const [name, call] of Object.entries({ ...waits, ...blocking, ...others })) {
		for (const options of [5, 0, null, true, '5', [], () => {}, Symbol(), 5n])
			await refused(name, call, options);
	}
	for (const [name, call] of Object.entries({ ...waits, ...blocking })) {
		for (const timeout of ['1', NaN, null, {}, true, 1n, new Date(1)])
			await refused(name, call, { timeout });
	}
	const { signal } = new AbortController();
	for (const [name, call] of Object.entries(waits)) {
		for (const wrong of [{}, null, true, 5, 'abort', [], new AbortController(), new EventTarget(),
				     { aborted: false }, { aborted: false, addEventListener() {} }])
			await refused(name, call, { signal: wrong });
	}
	// A blocked thread could not observe the signal.
	for (const [name, call] of Object.entries(blocking))
		await refused(name, call, { signal });
	for (const [name, call] of Object.entries(others)) {
		for (const repair of [1, null, {}, 'x'])
			await refused(name, call, { repair });
	}
	for (const name of ['fair', 'robust', 'errorcheck']) {
		for (const value of [1, 0, null, 'no', {}])
			await refused('Mutex.init', others['Mutex.init'], { [name]: value });
	}
	for (const name of ['fair', 'robust', 'preferWriter'])
		await refused('RWLock.init', others['RWLock.init'], { [name]: 1 });
	for (const [name, call] of Object.entries({ ...numbers, ...plain })) {
		for (const n of [null, '8', 8n, true, {}, { fair: true }, [], () => {}])
			await refused(name, call, n);
	}
	for (const [name, call] of Object.entries(plain)) {
		for (const n of [false, 'all', NaN, Symbol()])
			await refused(name, call, n);
	}
	for (const callback of [undefined, {}, 'x'])
		await refused('withLock, callback', (f) => mutex.withLock(f, {}), callback);
	// None of these calls has changed an object.
	assert.deepStrictEqual(bytes(), before);
	// Valid arguments.
	for (const count of [undefined, 0, -1, 1.5, Infinity, -Infinity])
		condition.notify(count);
	assert.strictEqual(memwait.waiters(new Int32Array(buffer), 1.5), 0);
	mutex.unlock();
	for (const options of [undefined, {}, { timeout: undefined, signal: undefined }, { signal, timeout: 1e300 },
			       Object.create({ timeout: 1000 }), { timeout: -Infinity, other: 1 }]) {
		await mutex.lock(options);
		mutex.unlock();
		await mutex.withLock(() => {}, options);
	}
	assert.strictEqual(Mutex.init(buffer, undefined, undefined).tryLock(), true);
	assert.throws(() => Mutex.init(buffer, 0, { errorcheck: true, fair: undefined }).unlock(), { code: 'EPERM' });
	assert.strictEqual(Channel.init(buffer, undefined, 4, 2).itemSize, 4);
});

test('objects: a signal that is not an instance of AbortSignal', async () => {
	const mutex = Mutex.init(buffer, 0);
	const controller = new AbortController();
	// An object that looks like a signal of another realm.
	const signal = {};
	for (const name of ['throwIfAborted', 'addEventListener', 'removeEventListener'])
		signal[name] = (...args) => controller.signal[name](...args);
	for (const name of ['aborted', 'reason'])
		Object.defineProperty(signal, name, { get: () => controller.signal[name] });
	mutex.lockSync();
	const given = mutex.lock({ signal });
	controller.abort();
	await assert.rejects(given, { name: 'AbortError' });
	await assert.rejects(mutex.lock({ signal }), { name: 'AbortError' });
	mutex.unlock();
	mutex.destroy();
});

test('objects: a method of another class', async () => {
	const objects = [new Mutex(buffer), new Condition(buffer, 64), new Semaphore(buffer, 128),
			 Channel.init(buffer, 1024, 4, 2), new RWLock(buffer, 192), new Barrier(buffer, 256),
			 new WaitGroup(buffer, 320), new Event(buffer, 384)];
	const methods = [[Mutex, 'tryLock', 'lockSync', 'unlock'], [Condition, 'notify', 'notifyAll'],
			 [Semaphore, 'tryAcquire', 'acquireSync', 'release'],
			 [Channel, 'tryRecv', 'recvSync', 'close'], [Barrier, 'waitSync'],
			 [WaitGroup, 'add', 'done', 'waitSync'], [Event, 'set', 'clear', 'isSet', 'waitSync']];
	for (const object of objects) {
		for (const [Class, ...names] of methods.filter(([Class]) => Class !== object.constructor)) {
			for (const name of names)
				assert.throws(() => Class.prototype[name].call(object), TypeError);
		}
	}
	const [mutex, condition, semaphore, channel] = objects;
	await assert.rejects(Mutex.prototype.lock.call(semaphore), TypeError);
	await assert.rejects(Semaphore.prototype.acquire.call(mutex), TypeError);
	await assert.rejects(Channel.prototype.recv.call(condition), TypeError);
	assert.throws(() => condition.waitSync(Object.setPrototypeOf(semaphore, Mutex.prototype)), TypeError);
	const get = (Class, name, object) => Reflect.get(Class.prototype, name, object);
	assert.throws(() => get(Semaphore, 'value', channel), TypeError);
	assert.throws(() => get(Channel, 'length', mutex), TypeError);
	const Base = Object.getPrototypeOf(Condition), Lock = Object.getPrototypeOf(Mutex);
	for (const kind of [-1, 8, 2 ** 31, NaN])
		assert.throws(() => new Base(kind, buffer, 0), { code: 'EINVAL' });
	// Create locks with an invalid function number, or with the function number of another
	// class.
	for (const call of [-1, 1.5, 2, 5, 9, 10, 2 ** 31, NaN]) {
		const lock = new Lock(0, call, buffer, 0);
		for (const name of ['lockSync', 'tryLock', 'unlock'])
			assert.throws(() => lock[name](), { code: 'ERR_INVALID_THIS' }, `${call}`);
	}
	const none = new Lock(7, 9, buffer, 384);
	for (const name of ['tryLock', 'unlock'])
		assert.throws(() => none[name](), { code: 'EINVAL' });
	// None of these calls has changed an object.
	assert.deepStrictEqual(new Uint8Array(buffer, 0, 1024), new Uint8Array(1024));
});

test('objects: in views of memory', async () => {
	const shared = new SharedArrayBuffer(4096);
	for (const memory of [buffer, shared]) {
		const views = [new Uint8Array(memory, 64), new DataView(memory, 64), new BigInt64Array(memory, 64),
			       Buffer.from(memory, 64)];
		const mutex = Mutex.init(memory, 72);
		await mutex.lock();
		for (const view of views)
			assert.strictEqual(new Mutex(view, 8).tryLock(), false);
		mutex.unlock();
		assert.strictEqual(Channel.init(views[0], 64, 4, 2).trySend(item(1)), true);
		assert.deepStrictEqual(new Channel(memory, 128).tryRecv(), item(1));
		// An object must lie within the view.
		const view = new Uint8Array(memory, 64, Mutex.SIZE + 8);
		assert.ok(new Mutex(view, 8));
		assert.throws(() => new Mutex(view, 16), outOfRange);
		assert.throws(() => Channel.init(new Uint8Array(memory, 0, 256), 0, 64, 4), outOfRange);
	}
});

test('objects: inspect() shows the state', async () => {
	const mutex = Mutex.init(buffer, 64, { fair: true }), checked = Mutex.init(buffer, 128, { errorcheck: true });
	const rwlock = RWLock.init(buffer, 192, { preferWriter: true }), event = Event.init(buffer, 260);
	const condition = Condition.init(buffer, 320), semaphore = Semaphore.init(buffer, 384, 3);
	const barrier = Barrier.init(buffer, 448, 2), group = WaitGroup.init(buffer, 512, 1);
	const channel = Channel.init(buffer, 1024, 4, 2);
	const shows = (object, text) => assert.strictEqual(inspect(object, { breakLength: Infinity }), text);
	shows(mutex, 'Mutex { byteOffset: 64, fair: true, locked: false, waiters: 0 }');
	await mutex.lock();
	const controller = new AbortController();
	const { signal } = controller;
	const given = [mutex.lock({ signal }), mutex.lock({ signal }), barrier.wait({ signal }),
		       group.wait({ signal }), event.wait({ signal })];
	shows(mutex, 'Mutex { byteOffset: 64, fair: true, locked: true, waiters: 2 }');
	shows(new Mutex(new Uint8Array(buffer, 48), 16),
	      'Mutex { byteOffset: 64, fair: true, locked: true, waiters: 2 }');
	shows(barrier, 'Barrier { byteOffset: 448, waiters: 1 }');
	shows(group, 'WaitGroup { byteOffset: 512, done: false, waiters: 1 }');
	shows(event, 'Event { byteOffset: 260, set: false, waiters: 1 }');
	controller.abort();
	await Promise.allSettled(given);
	shows(checked, 'Mutex { byteOffset: 128, errorcheck: true, lockedByThisThread: false, waiters: 0 }');
	checked.lockSync();
	shows(checked, 'Mutex { byteOffset: 128, errorcheck: true, lockedByThisThread: true, waiters: 0 }');
	shows(rwlock, 'RWLock { byteOffset: 192, preferWriter: true, waiters: 0 }');
	shows(rwlock.reader, 'Side { byteOffset: 192, preferWriter: true, waiters: 0 }');
	shows(condition, 'Condition { byteOffset: 320, waiters: 0 }');
	shows(semaphore, 'Semaphore { byteOffset: 384, value: 3, waiters: 0 }');
	group.done();
	shows(group, 'WaitGroup { byteOffset: 512, done: true, waiters: 0 }');
	event.set();
	shows([event], '[ Event { byteOffset: 260, set: true, waiters: 0 } ]');
	channel.trySend(item(1));
	shows(channel, 'Channel { byteOffset: 1024, itemSize: 4, length: 1, waiters: 0 }');
	channel.tryRecv();
	channel.destroy();
	shows(channel, "Channel { byteOffset: 1024, error: 'EINVAL' }");
	shows({ a: { b: { c: mutex } } }, '{ a: { b: { c: [Mutex] } } }');
	shows(Object.create(Mutex.prototype), 'Mutex {}');
	inspect(Mutex.prototype);
	inspect(Object.getPrototypeOf(Condition).prototype);
	class Mine extends Semaphore {}
	shows(new Mine(buffer, 384), 'Mine { byteOffset: 384, value: 3, waiters: 0 }');
});

test('guards: only the first release has an effect', async () => {
	const mutex = Mutex.init(buffer, 0, { errorcheck: true }), semaphore = Semaphore.init(buffer, 64, 1);
	const rwlock = RWLock.init(buffer, 128);
	const { dispose, asyncDispose } = Symbol;
	const ways = [(guard) => guard.release()];
	if (dispose)
		ways.push((guard) => guard[dispose](), (guard) => guard[asyncDispose]());
	const takes = [
		[() => mutex.lock(), () => mutex.tryLock(), () => mutex.unlock()],
		[() => mutex.lockSync(), () => mutex.tryLock(), () => mutex.unlock()],
		[() => rwlock.reader.lock(), () => rwlock.writer.tryLock(), () => rwlock.writer.unlock()],
		[() => rwlock.writer.lockSync(), () => rwlock.reader.tryLock(), () => rwlock.reader.unlock()],
		[() => semaphore.acquire(), () => semaphore.tryAcquire(), () => semaphore.release()],
		[() => semaphore.acquireSync(), () => semaphore.tryAcquire(), () => semaphore.release()],
	];
	for (const release of ways) {
		for (const [take, attempt, undo] of takes) {
			const guard = await take();
			assert.strictEqual(attempt(), false);
			await release(guard);
			assert.strictEqual(attempt(), true);
			// A second release does not affect the new holder.
			await release(guard);
			undo();
		}
	}
	assert.throws(() => mutex.unlock(), { code: 'EPERM' });
	assert.strictEqual(semaphore.value, 1);
	// The lock has already been unlocked by unlock().
	for (const lock of [mutex, rwlock.writer]) {
		const guard = await lock.lock();
		lock.unlock();
		const next = await lock.lock();
		guard.release();
		next.release();
		assert.throws(() => lock.unlock(), { code: 'EPERM' });
	}
	await mutex.withLock(() => mutex.unlock());
	// Each reader has its own guard.
	const guards = [await rwlock.reader.lock(), rwlock.reader.lockSync()];
	guards[1].release();
	assert.strictEqual(rwlock.writer.tryLock(), false);
	guards[0].release();
	assert.strictEqual(rwlock.writer.tryLock(), true);
	rwlock.writer.unlock();
});

test('guards: a wait in between', async () => {
	const mutex = Mutex.init(buffer, 0), condition = Condition.init(buffer, 64);
	const controller = new AbortController();
	const { signal } = controller;
	const waits = [undefined, { timeout: 2 }, { signal }].map(async (options) => {
		const guard = await mutex.lock();
		await condition.wait(mutex, options).catch(({ name }) => assert.strictEqual(name, 'AbortError'));
		assert.strictEqual(mutex.tryLock(), false);
		guard.release();
	});
	await waits[1];
	// While the waits are pending, other waiters lock the mutex and call unlock().
	await mutex.lock();
	mutex.unlock();
	controller.abort();
	await waits[2];
	condition.notify();
	await waits[0];
	assert.strictEqual(mutex.tryLock(), true);
	mutex.unlock();
	condition.destroy();
});

test('rwlock', async () => {
	for (const options of [{}, { fair: true }, { preferWriter: true }]) {
		const rwlock = RWLock.init(buffer, 0, options), { reader, writer } = new RWLock(buffer, 0);
		assert.strictEqual(rwlock.reader, rwlock.reader);
		const first = await reader.lock();
		assert.strictEqual(reader.tryLock(), true);
		reader.unlock();
		assert.strictEqual(writer.tryLock(), false);
		await assert.rejects(writer.lock({ timeout: 2 }), { code: 'ETIMEDOUT' });
		assert.throws(() => writer.lockSync({ timeout: 2 }), { code: 'ETIMEDOUT' });
		assert.throws(() => rwlock.destroy(), { code: 'EBUSY' });
		const controller = new AbortController();
		const given = writer.lock({ signal: controller.signal }), written = writer.withLock(() => 5);
		controller.abort();
		await assert.rejects(given, { name: 'AbortError' });
		first.release();
		assert.strictEqual(await written, 5);
		writer.lockSync();
		assert.strictEqual(reader.tryLock(), false);
		// The operation is cancelled when it holds the lock, before the promise is settled:
		// the lock passes to the next waiter.
		const late = new AbortController();
		const told = reader.lock({ signal: late.signal }), after = writer.lock();
		writer.unlock();
		late.abort();
		await assert.rejects(told, { name: 'AbortError' });
		(await after).release();
		assert.throws(() => rwlock.reader.unlock(), { code: 'EPERM' });
		rwlock.destroy();
	}
});

test('barrier', async () => {
	const barrier = Barrier.init(buffer, 0, 3);
	for (let round = 0; round < 3; round++) {
		const met = await Promise.all([1, 2, 3].map(() => barrier.wait()));
		assert.deepStrictEqual(met.sort(), [false, false, true]);
	}
	// A wait that ends early does not count as an arrival.
	await assert.rejects(barrier.wait({ timeout: 2 }), { code: 'ETIMEDOUT' });
	assert.throws(() => barrier.waitSync({ timeout: 2 }), { code: 'ETIMEDOUT' });
	const controller = new AbortController();
	const given = barrier.wait({ signal: controller.signal });
	controller.abort();
	await assert.rejects(given, { name: 'AbortError' });
	const waits = [barrier.wait(), barrier.wait()];
	assert.throws(() => barrier.destroy(), { code: 'EBUSY' });
	const last = barrier.waitSync();
	assert.deepStrictEqual([last, ...await Promise.all(waits)].sort(), [false, false, true]);
	const broken = barrier.wait();
	barrier.abort();
	await assert.rejects(broken, { code: 'EPIPE' });
	assert.throws(() => barrier.waitSync(), { code: 'EPIPE' });
	barrier.reset();
	assert.throws(() => barrier.waitSync({ timeout: 2 }), { code: 'ETIMEDOUT' });
	barrier.destroy();
	new Uint8Array(buffer).fill(0);
	await assert.rejects(new Barrier(buffer).wait(), { code: 'EINVAL' });
});

test('wait group', async () => {
	const group = WaitGroup.init(buffer, 0, 1), other = new WaitGroup(buffer);
	const waits = [group.wait(), other.wait()];
	group.add();
	group.add(2);
	assert.strictEqual(await group.wait({ timeout: 2 }), false);
	assert.strictEqual(group.waitSync({ timeout: 2 }), false);
	const controller = new AbortController();
	const reason = Object.assign(new Error('mine'), { code: 'ETIMEDOUT' });
	const given = group.wait({ signal: controller.signal });
	controller.abort(reason);
	await assert.rejects(given, (error) => error === reason);
	assert.throws(() => group.destroy(), { code: 'EBUSY' });
	assert.throws(() => group.add(-5), { code: 'EINVAL' });
	assert.throws(() => group.add(2 ** 30 - 1), { code: 'EOVERFLOW' });
	group.add(-3);
	group.done();
	assert.deepStrictEqual(await Promise.all(waits), [true, true]);
	assert.strictEqual(group.waitSync(), true);
	assert.strictEqual(await group.wait({ timeout: 0 }), true);
	assert.throws(() => group.done(), { code: 'EINVAL' });
	group.destroy();
});

test('event', async () => {
	const event = Event.init(buffer, 4), other = new Event(buffer, 4);
	assert.strictEqual(event.isSet(), false);
	const waits = [event.wait(), other.wait({ timeout: 1e300 }), event.wait()];
	assert.throws(() => event.destroy(), { code: 'EBUSY' });
	assert.strictEqual(await event.wait({ timeout: 2 }), false);
	assert.strictEqual(event.waitSync({ timeout: 2 }), false);
	const controller = new AbortController();
	const reason = Object.assign(new Error('mine'), { code: 'ETIMEDOUT' });
	const given = event.wait({ signal: controller.signal });
	controller.abort(reason);
	await assert.rejects(given, (error) => error === reason);
	// A notify of the word does not end a wait if the event was not set.
	assert.strictEqual(memwait.notify(new Int32Array(buffer), 1), 3);
	await until(() => memwait.waiters(new Int32Array(buffer), 1) === 3);
	// All waits that were pending at set() end, even if the event is cleared immediately.
	event.set();
	event.clear();
	assert.deepStrictEqual(await Promise.all(waits), [true, true, true]);
	assert.strictEqual(other.isSet(), false);
	assert.strictEqual(await event.wait({ timeout: 0 }), false);
	other.set();
	other.set();
	assert.strictEqual(event.isSet(), true);
	assert.strictEqual(event.waitSync(), true);
	assert.strictEqual(await event.wait({ timeout: 0 }), true);
	// The value of a set event is odd, as in Python.
	assert.strictEqual(new Uint32Array(buffer)[1], 3);
	event.clear();
	event.destroy();
});

test('map: more than the maximum size of a buffer', () => {
	const large = `${file}-large`;
	try {
		assert.throws(() => memwait.map(large, constants.MAX_LENGTH + 1), RangeError);
		assert.ok(!fs.existsSync(large));
	} finally {
		fs.rmSync(large, { force: true });
	}
});

test('mutex: first come, first served', async () => {
	for (const memory of [buffer, new SharedArrayBuffer(64)]) {
		const mutex = Mutex.init(memory, 0, { fair: true });
		const order = [];
		await mutex.lock();
		assert.strictEqual(mutex.tryLock(), false);
		assert.throws(() => mutex.destroy(), { code: 'EBUSY' });
		const promises = [0, 1, 2, 3].map(async (n) => {
			await mutex.withLock(async () => {
				order.push(n);
				await null;
				order.push(n);
			});
		});
		await assert.rejects(mutex.lock({ timeout: 5 }), { code: 'ETIMEDOUT', errno: -110 });
		assert.throws(() => mutex.lockSync({ timeout: 5 }), { code: 'ETIMEDOUT' });
		assert.throws(() => mutex.lockSync({ timeout: -5 }), { code: 'ETIMEDOUT' });
		assert.deepStrictEqual(order, []);
		mutex.unlock();
		await Promise.all(promises);
		assert.deepStrictEqual(order, [0, 0, 1, 1, 2, 2, 3, 3]);
		assert.strictEqual(mutex.tryLock(), true);
		mutex.unlock();
		assert.throws(() => mutex.unlock(), { code: 'EPERM' });
		mutex.destroy();
	}
});

test('mutex: cancelled at each point', async () => {
	const mutex = Mutex.init(buffer, 0, { fair: true });
	await assert.rejects(mutex.lock({ signal: aborted() }), { name: 'AbortError' });
	assert.strictEqual(mutex.tryLock(), true);
	// The operation is cancelled while it waits: the next waiter takes its queue position.
	const controller = new AbortController();
	const given = mutex.lock({ signal: controller.signal });
	const next = mutex.lock();
	const reason = new Error('given up');
	controller.abort(reason);
	await assert.rejects(given, (error) => error === reason);
	mutex.unlock();
	await next;
	// The operation is cancelled when it holds the mutex, before the promise is settled: the
	// mutex passes to the next waiter.
	const late = new AbortController();
	const told = mutex.lock({ signal: late.signal });
	const after = mutex.lock();
	mutex.unlock();
	late.abort();
	await assert.rejects(told, { name: 'AbortError' });
	await after;
	// The operation is aborted after the promise was fulfilled: the mutex stays locked.
	const last = new AbortController();
	const locked = mutex.lock({ signal: last.signal });
	mutex.unlock();
	await locked;
	last.abort();
	assert.strictEqual(mutex.tryLock(), false);
	mutex.unlock();
	mutex.destroy();
});

test('mutex: errorcheck records the owner', async () => {
	const mutex = Mutex.init(buffer, 0, { errorcheck: true });
	await mutex.lock();
	await assert.rejects(mutex.lock(), { code: 'EDEADLK' });
	assert.throws(() => mutex.lockSync(), { code: 'EDEADLK' });
	mutex.unlock();
	assert.throws(() => mutex.unlock(), { code: 'EPERM' });
	await assert.rejects(mutex.withLock(() => {
		throw new RangeError('mine');
	}), RangeError);
	assert.throws(() => mutex.unlock(), { code: 'EPERM' });
});

test('condition: notifies, timeouts and cancelled waits', async () => {
	const mutex = Mutex.init(buffer, 0), condition = Condition.init(buffer, 64);
	const order = [];
	const wait = async (n, options) => {
		await mutex.lock();
		order.push([n, await condition.wait(mutex, options)]);
		assert.strictEqual(mutex.tryLock(), false);
		mutex.unlock();
	};
	const waits = [wait(0), wait(1), wait(2), wait(3)];
	await until(() => sleepers(64, Condition.SIZE) === 4);
	condition.notify();
	await waits[0];
	condition.notify(2);
	await Promise.all(waits.slice(0, 3));
	condition.notifyAll();
	await Promise.all(waits);
	await wait(4, { timeout: 2 });
	assert.deepStrictEqual(order, [[0, true], [1, true], [2, true], [3, true], [4, false]]);
	mutex.lockSync();
	assert.strictEqual(condition.waitSync(mutex, { timeout: 2 }), false);
	assert.strictEqual(mutex.tryLock(), false);
	const controller = new AbortController();
	const given = condition.wait(mutex, { signal: controller.signal });
	assert.strictEqual(mutex.tryLock(), true);
	controller.abort();
	mutex.unlock();
	await assert.rejects(given, { name: 'AbortError' });
	// The mutex is locked, as after any wait.
	assert.strictEqual(mutex.tryLock(), false);
	mutex.unlock();
	await assert.rejects(condition.wait(mutex), { code: 'EPERM' });
	condition.destroy();
	mutex.destroy();
});

test('condition: a signal that was already aborted', async () => {
	const mutex = Mutex.init(buffer, 0), condition = Condition.init(buffer, 64);
	await mutex.lock();
	await assert.rejects(condition.wait(mutex, { signal: aborted() }), { name: 'AbortError' });
	assert.strictEqual(mutex.tryLock(), false);
	const controller = new AbortController();
	const options = {
		get timeout() {
			controller.abort();
			return undefined;
		},
		signal: controller.signal,
	};
	await assert.rejects(condition.wait(mutex, options), { name: 'AbortError' });
	assert.strictEqual(mutex.tryLock(), false);
	mutex.unlock();
	condition.destroy();
	mutex.destroy();
});

test('condition: a reason with the code ETIMEDOUT is not a timeout', async () => {
	const mutex = Mutex.init(buffer, 0), condition = Condition.init(buffer, 64);
	const reason = Object.assign(new Error('mine'), { code: 'ETIMEDOUT' });
	const controller = new AbortController();
	await mutex.lock();
	const given = condition.wait(mutex, { signal: controller.signal });
	controller.abort(reason);
	await assert.rejects(given, (error) => error === reason);
	assert.strictEqual(mutex.tryLock(), false);
	mutex.unlock();
	condition.destroy();
	mutex.destroy();
});

test('semaphore', async () => {
	const semaphore = Semaphore.init(buffer, 0, 2);
	assert.strictEqual(semaphore.value, 2);
	await semaphore.acquire();
	semaphore.acquireSync();
	assert.strictEqual(semaphore.tryAcquire(), false);
	await assert.rejects(semaphore.acquire({ timeout: 2 }), { code: 'ETIMEDOUT' });
	assert.throws(() => semaphore.acquireSync({ timeout: 2 }), { code: 'ETIMEDOUT' });
	const controller = new AbortController();
	const given = semaphore.acquire({ signal: controller.signal });
	const next = semaphore.acquire();
	semaphore.release();
	controller.abort();
	await assert.rejects(given, { name: 'AbortError' });
	await next;
	assert.strictEqual(semaphore.value, 0);
	semaphore.release();
	assert.strictEqual(semaphore.tryAcquire(), true);
	semaphore.destroy();
});

test('a fair semaphore goes to the longest waiter', async () => {
	const semaphore = Semaphore.init(buffer, 0, 1, { fair: true });
	const order = [];
	assert.strictEqual(semaphore.tryAcquire(), true);
	const waits = [1, 2].map((n) => semaphore.acquire().then(() => order.push(n)));
	semaphore.release();
	assert.strictEqual(semaphore.tryAcquire(), false);
	waits.push(semaphore.acquire().then(() => order.push(3)));
	semaphore.release();
	semaphore.release();
	await Promise.all(waits);
	assert.deepStrictEqual(order, [1, 2, 3]);
	assert.strictEqual(semaphore.value, 0);
	semaphore.destroy();
	assert.throws(() => Semaphore.init(buffer, 0, 32768, { fair: true }), { code: 'EINVAL' });
	assert.throws(() => Semaphore.init(buffer, 0, 1, { fair: 1 }), TypeError);
});

test('many promises are settled together', async () => {
	// All waits end before the event loop polls.
	const semaphore = Semaphore.init(buffer, 0);
	const crowd = Array.from({ length: 300 }, () => semaphore.acquire());
	assert.strictEqual(sleepers(0, Semaphore.SIZE), crowd.length);
	crowd.forEach(() => semaphore.release());
	await Promise.all(crowd);
	assert.strictEqual(semaphore.value, 0);
	semaphore.destroy();
});

test('channel', async () => {
	const channel = Channel.init(buffer, 0, 4, 2), other = new Channel(buffer);
	assert.strictEqual(other.itemSize, 4);
	assert.strictEqual(channel.tryRecv(), undefined);
	const early = other.recv();
	await channel.send(item(1));
	assert.deepStrictEqual(await early, item(1));
	await channel.send(item(2));
	assert.strictEqual(channel.trySend(new DataView(item(3).buffer)), true);
	assert.strictEqual(channel.trySend(item(4)), false);
	assert.strictEqual(channel.length, 2);
	assert.throws(() => channel.sendSync(item(4), { timeout: 1 }), { code: 'ETIMEDOUT' });
	// send() copies the item when it is called.
	const bytes = item(4);
	const late = channel.send(bytes);
	bytes.fill(9);
	assert.deepStrictEqual(channel.recvSync(), item(2));
	await late;
	const controller = new AbortController();
	const given = channel.send(item(5), { signal: controller.signal });
	controller.abort();
	await assert.rejects(given, { name: 'AbortError' });
	assert.deepStrictEqual(channel.tryRecv(), item(3));
	channel.sendSync(item(6));
	channel.close();
	channel.close();
	await assert.rejects(channel.send(item(7)), { code: 'EPIPE' });
	const rest = [];
	for await (const got of other)
		rest.push(got[0]);
	assert.deepStrictEqual(rest, [4, 6]);
	assert.throws(() => channel.recvSync(), { code: 'EPIPE' });
	channel.destroy();
	assert.throws(() => channel.tryRecv(), { code: 'EINVAL' });
	await assert.rejects(channel.recv(), { code: 'EINVAL' });
});

test('channel: a cancelled receiver takes nothing', async () => {
	const channel = Channel.init(buffer, 0, 4, 2);
	const controller = new AbortController();
	const given = channel.recv({ signal: controller.signal });
	const next = channel.recv();
	await channel.send(item(1));
	controller.abort();
	await assert.rejects(given, { name: 'AbortError' });
	assert.deepStrictEqual(await next, item(1));
	channel.destroy();
});

test('channel: initialised again with another size', async () => {
	const channel = Channel.init(buffer, 0, 4, 2);
	for (const [size, capacity] of [[4096, 2], [2, 2]]) {
		new Uint8Array(buffer).fill(0);
		const other = Channel.init(buffer, 0, size, capacity);
		other.sendSync(new Uint8Array(size));
		assert.throws(() => channel.tryRecv(), { code: 'EINVAL' });
		assert.throws(() => channel.recvSync(), { code: 'EINVAL' });
		await assert.rejects(channel.recv(), { code: 'EINVAL' });
		assert.throws(() => channel.trySend(item(1)), { code: 'EINVAL' });
		await assert.rejects(channel.send(item(1)), { code: 'EINVAL' });
		assert.strictEqual(other.length, 1);
	}
	new Uint8Array(buffer).fill(0);
	// The new channel ends beyond the buffer of the old one.
	const short = new SharedArrayBuffer(Channel.size(4, 2));
	const old = Channel.init(short, 0, 4, 2);
	Channel.init(buffer, 0, 4, 200);
	new Uint8Array(short).set(new Uint8Array(buffer, 0, short.byteLength));
	assert.throws(() => old.trySend(item(1)), { code: 'EINVAL' });
});

test('channel: an item whose buffer is detached by send()', async () => {
	const channel = Channel.init(buffer, 0, 4, 2);
	const bytes = item(1);
	const options = {
		get timeout() {
			structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
			return undefined;
		},
	};
	await assert.rejects(channel.send(bytes, options), RangeError);
	assert.strictEqual(channel.length, 0);
	channel.destroy();
});

test('neither memory nor descriptors leak', async () => {
	const view = new Int32Array(buffer);
	// The items are large, so that a leak of items shows in the RSS.
	const SIZE = 60000;
	const channel = Channel.init(buffer, 64, SIZE, 1);
	const bytes = new Uint8Array(SIZE);
	const round = async (n) => {
		for (let i = 0; i < n; i++) {
			const fd = memwait.memfd(4096);
			const mapped = memwait.map(fd, 4096);
			fs.closeSync(fd);
			const mutex = Mutex.init(mapped);
			await mutex.lock();
			const controller = new AbortController();
			const given = [mutex.lock({ signal: controller.signal }),
				       channel.recv({ signal: controller.signal })];
			controller.abort();
			await Promise.allSettled(given);
			const waits = [1, 2, 3, 4].map(() => memwait.waitAsync(view, 0, 0).value);
			memwait.notify(view, 0);
			await Promise.all(waits);
			const got = channel.recv();
			channel.sendSync(bytes);
			await got;
			await channel.recv({ timeout: 0 }).catch(() => undefined);
			assert.strictEqual(channel.tryRecv(), undefined);
		}
		// Immediates run the finalizers of collected objects.
		for (let i = 0; i < 3; i++) {
			global.gc();
			await new Promise((resolve) => setImmediate(resolve));
		}
		const ours = (file) => file.includes('memwait');
		return {
			rss: process.memoryUsage().rss,
			descriptors: fs.readdirSync('/proc/self/fd').filter((fd) => {
				try {
					return ours(fs.readlinkSync(`/proc/self/fd/${fd}`));
				} catch {
					return false;
				}
			}).length,
			mappings: fs.readFileSync('/proc/self/maps', 'latin1').split('\n').filter(ours).length,
		};
	};
	await round(50);
	const before = await round(50);
	let after = await round(600);
	// A thread of V8 frees the memory of collected objects. It may have to wait for CPU time.
	const end = performance.now() + limit(60000);
	while (after.rss >= before.rss + 400 * SIZE && performance.now() < end) {
		await new Promise((resolve) => setTimeout(resolve, 20));
		after = await round(0);
	}
	console.log(`# ${JSON.stringify(before)}, ${JSON.stringify(after)}`);
	assert.strictEqual(after.descriptors, before.descriptors);
	assert.ok(after.mappings <= before.mappings + 20);
	// AddressSanitizer does not reuse freed memory.
	if (!process.env.ASAN_OPTIONS)
		assert.ok(after.rss < before.rss + 400 * SIZE);
});
