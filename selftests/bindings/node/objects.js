// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// Mutex, Condition, Semaphore and Channel in one thread.
const { assert, buffer, file, memwait, sleepers, test, until } = require('./harness');
const { Mutex, Condition, Semaphore, Channel } = memwait;
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
	for (const Class of [Mutex, Condition, Semaphore, Channel]) {
		for (const other of [undefined, null, 0, {}, 'x', new ArrayBuffer(64), Buffer.alloc(64),
				     new Uint8Array(buffer)])
			assert.throws(() => new Class(other), wrongType);
		for (const offset of [1, 4, 1.5, -8, buffer.byteLength - 8, buffer.byteLength + 8, Infinity, NaN])
			assert.throws(() => new Class(buffer, offset), outOfRange);
	}
	for (const Class of [Mutex, Condition, Semaphore]) {
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
	// A channel of which only the beginning is in the buffer.
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
	const condition = Condition.init(buffer, 64);
	for (const other of [undefined, {}, Semaphore.init(buffer, 128), condition]) {
		await assert.rejects(condition.wait(other), { ...wrongType, message: 'not a Mutex' });
		assert.throws(() => condition.waitSync(other), { ...wrongType, message: 'not a Mutex' });
	}
});

test('objects: what is passed in another place, or is of another type', async () => {
	const mutex = Mutex.init(buffer, 0), condition = Condition.init(buffer, 64);
	const semaphore = Semaphore.init(buffer, 128), channel = Channel.init(buffer, 192, 4, 2);
	// Each would block, or succeed.
	mutex.lockSync();
	const never = () => assert.fail('called');
	const waits = {
		'lock': (options) => mutex.lock(options),
		'withLock': (options) => mutex.withLock(never, options),
		'wait': (options) => condition.wait(mutex, options),
		'acquire': (options) => semaphore.acquire(options),
		'send': (options) => channel.send(item(1), options),
		'recv': (options) => channel.recv(options),
	};
	const blocking = {
		'lockSync': (options) => mutex.lockSync(options),
		'waitSync': (options) => condition.waitSync(mutex, options),
		'acquireSync': (options) => semaphore.acquireSync(options),
		'sendSync': (options) => channel.sendSync(item(1), options),
		'recvSync': (options) => channel.recvSync(options),
	};
	const others = {
		'Mutex': (options) => new Mutex(buffer, 0, options),
		'Mutex.init': (options) => Mutex.init(buffer, 0, options),
	};
	const numbers = {
		'Mutex': (n) => new Mutex(buffer, n),
		'Mutex.init': (n) => Mutex.init(buffer, n),
		'Condition': (n) => new Condition(buffer, n),
		'Condition.init': (n) => Condition.init(buffer, n),
		'Semaphore': (n) => new Semaphore(buffer, n),
		'Semaphore.init': (n) => Semaphore.init(buffer, n),
		'Semaphore.init, value': (n) => Semaphore.init(buffer, 0, n),
		'Channel': (n) => new Channel(buffer, n),
		'Channel.init': (n) => Channel.init(buffer, n, 4, 2),
		'Channel.init, itemSize': (n) => Channel.init(buffer, 0, n, 2),
		'Channel.init, capacity': (n) => Channel.init(buffer, 0, 4, n),
		'Channel.size, itemSize': (n) => Channel.size(n, 2),
		'Channel.size, capacity': (n) => Channel.size(4, n),
		'map, size': (n) => memwait.map(file, n),
		'memfd': (n) => memwait.memfd(n),
	};
	const bytes = () => new Uint8Array(buffer.slice(0, 1024));
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
	// It could not come while the thread blocks.
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
	for (const [name, call] of Object.entries(numbers)) {
		for (const n of [null, '8', 8n, true, {}, { fair: true }, [], () => {}])
			await refused(name, call, n);
	}
	for (const callback of [undefined, {}, 'x'])
		await refused('withLock, callback', (f) => mutex.withLock(f, {}), callback);
	// None of them has done anything.
	assert.deepStrictEqual(bytes(), before);
	// All of this is fine.
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

test('objects: a signal that only behaves as one', async () => {
	const mutex = Mutex.init(buffer, 0);
	const controller = new AbortController();
	// As of another realm: no instance of this one's class.
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
			 Channel.init(buffer, 192, 4, 2)];
	const methods = [[Mutex, 'tryLock', 'lockSync', 'unlock'], [Condition, 'notify', 'notifyAll'],
			 [Semaphore, 'tryAcquire', 'acquireSync', 'release'],
			 [Channel, 'tryRecv', 'recvSync', 'close']];
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
	const Base = Object.getPrototypeOf(Mutex);
	for (const kind of [-1, 4, 2 ** 31, NaN])
		assert.throws(() => new Base(kind, buffer, 0), { code: 'EINVAL' });
	// None of them has done anything.
	assert.deepStrictEqual(new Uint8Array(buffer, 0, 192), new Uint8Array(192));
});

test('map: more than a buffer can have', () => {
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
	// While it waits: the next one has its place.
	const controller = new AbortController();
	const given = mutex.lock({ signal: controller.signal });
	const next = mutex.lock();
	const reason = new Error('given up');
	controller.abort(reason);
	await assert.rejects(given, (error) => error === reason);
	mutex.unlock();
	await next;
	// When it has the mutex, and is not told yet: the next one gets it.
	const late = new AbortController();
	const told = mutex.lock({ signal: late.signal });
	const after = mutex.lock();
	mutex.unlock();
	late.abort();
	await assert.rejects(told, { name: 'AbortError' });
	await after;
	// When it is told: the mutex is locked.
	const last = new AbortController();
	const locked = mutex.lock({ signal: last.signal });
	mutex.unlock();
	await locked;
	last.abort();
	assert.strictEqual(mutex.tryLock(), false);
	mutex.unlock();
	mutex.destroy();
});

test('mutex: errorcheck knows its thread', async () => {
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

test('condition: signals, time-outs and cancels', async () => {
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
	// It is locked, as after any wait.
	assert.strictEqual(mutex.tryLock(), false);
	mutex.unlock();
	await assert.rejects(condition.wait(mutex), { code: 'EPERM' });
	condition.destroy();
	mutex.destroy();
});

test('condition: a signal that has come already', async () => {
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

test('condition: a reason is no time-out', async () => {
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

test('a fair semaphore is for who waits longest', async () => {
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

test('a crowd at once', async () => {
	// All end before the event loop looks.
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
	// What is sent is what it was at the call.
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

test('channel: initialised anew with another size', async () => {
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
	// The new one ends behind the buffer of the old one.
	const short = new SharedArrayBuffer(Channel.size(4, 2));
	const old = Channel.init(short, 0, 4, 2);
	Channel.init(buffer, 0, 4, 200);
	new Uint8Array(short).set(new Uint8Array(buffer, 0, short.byteLength));
	assert.throws(() => old.trySend(item(1)), { code: 'EINVAL' });
});

test('channel: an item whose buffer goes while it is sent', async () => {
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

test('neither memory nor descriptors are lost', async () => {
	const view = new Int32Array(buffer);
	// What is lost with an item is seen.
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
		// What is collected is finalized later, by immediates.
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
	const after = await round(250);
	console.log(`# ${JSON.stringify(before)}, ${JSON.stringify(after)}`);
	assert.strictEqual(after.descriptors, before.descriptors);
	assert.ok(after.mappings <= before.mappings + 20);
	// AddressSanitizer keeps what was freed.
	if (!process.env.ASAN_OPTIONS)
		assert.ok(after.rss < before.rss + 190 * SIZE);
});
