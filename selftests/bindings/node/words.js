// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// Tests of Atomics.wait, waitAsync and notify: each step of ECMAScript's specification.
const { assert, buffer, file, memwait, place, test, worker, until } = require('./harness');
const { Atomics, wait, waitAsync, notify } = memwait;
const fs = require('fs');
const path = require('path');
const { pathToFileURL } = require('url');
const vm = require('vm');

const poison = { valueOf() { throw new Error('evaluated'); } };
const evaluated = { message: 'evaluated' };
const waits = [wait, waitAsync];
const shared = new SharedArrayBuffer(1024);
// Runs the tests in both kinds of memory.
const views = [new Int32Array(buffer), new Int32Array(shared), new BigInt64Array(buffer, 512),
	       new BigInt64Array(shared, 512)];

function zero(view)
{
	return view instanceof BigInt64Array ? 0n : 0;
}

function asyncOf(value)
{
	return { async: false, value };
}

test('the device cannot be opened at first', () => {
	const open = [];
	try {
		for (;;)
			open.push(fs.openSync('/dev/null', 'r'));
	} catch (error) {
		assert.strictEqual(error.code, 'EMFILE');
	}
	const view = views[0];
	try {
		assert.throws(() => wait(view, 0, 0, 1), { code: 'EMFILE' });
		assert.throws(() => waitAsync(view, 0, 0, 1), { code: 'EMFILE' });
		assert.throws(() => memwait.Mutex.init(buffer).lockSync(), { code: 'EMFILE' });
		assert.strictEqual(wait(view, 0, 1), 'not-equal');
		assert.strictEqual(memwait.available(), false);
	} finally {
		open.forEach((fd) => fs.closeSync(fd));
	}
	assert.strictEqual(memwait.available(), true);
	assert.strictEqual(wait(view, 0, 0, 1), 'timed-out');
});

// Closes the descriptors of this process whose link is @name and for which is(number) is true.
function closeDescriptors(name, is = () => true)
{
	for (const number of fs.readdirSync('/proc/self/fd')) {
		try {
			if (fs.readlinkSync(`/proc/self/fd/${number}`) === name && is(number))
				fs.closeSync(Number(number));
		} catch (error) {
			// The folder's own descriptor has already been closed.
			assert.strictEqual(error.code, 'ENOENT');
		}
	}
}

test('descriptors that the program closes', async () => {
	const view = views[0], device = '/dev/memwait', epoll = 'anon_inode:[eventpoll]';
	assert.strictEqual(wait(view, 0, 0, 1), 'timed-out');
	const lost = assert.rejects(waitAsync(view, 0, 0).value, { code: 'EBADF' });
	closeDescriptors(device);
	const { value } = waitAsync(view, 1, 0);
	await lost;
	assert.strictEqual(notify(view, 1), 1);
	assert.strictEqual(await value, 'ok');
	assert.strictEqual(wait(view, 0, 0, 1), 'timed-out');
	// A callback closes the descriptor while results are delivered.
	const next = waitAsync(view, 0, 0).value.then(() => {
		closeDescriptors(device);
		return waitAsync(view, 1, 0).value;
	});
	assert.strictEqual(notify(view, 0), 1);
	await until(() => memwait.waiters(view, 1) === 1);
	assert.strictEqual(notify(view, 1), 1);
	assert.strictEqual(await next, 'ok');
	assert.strictEqual(wait(view, 0, 0, 1), 'timed-out');
	// Close the descriptor that a blocking thread polls: only this epoll descriptor contains
	// another epoll descriptor.
	closeDescriptors(epoll, (number) => {
		const watched = fs.readFileSync(`/proc/self/fdinfo/${number}`, 'utf8').matchAll(/tfd: +(\d+)/g);
		return [...watched].some(([, fd]) => fs.readlinkSync(`/proc/self/fd/${fd}`) === epoll);
	});
	// The wait ends with an error, before its deadline.
	assert.throws(() => wait(view, 0, 0, 60000), { code: 'EBADF' });
	assert.strictEqual(wait(view, 0, 0, 1), 'timed-out');
});

test('the functions have the properties of the engine\'s functions', () => {
	for (const [name, length] of [['wait', 4], ['waitAsync', 4], ['notify', 3]]) {
		const property = Object.getOwnPropertyDescriptor(Atomics, name);
		assert.strictEqual(property.value, memwait[name]);
		assert.deepStrictEqual([property.writable, property.enumerable, property.configurable],
				       [true, false, true]);
		assert.strictEqual(property.value.length, length);
		assert.strictEqual(property.value.name, name);
		assert.throws(() => new property.value(), TypeError);
		assert.strictEqual(Object.hasOwn(property.value, 'prototype'), false);
		assert.notStrictEqual(property.value, globalThis.Atomics[name]);
	}
	assert.strictEqual(Object.prototype.toString.call(Atomics), '[object Atomics]');
	assert.strictEqual(Atomics.load, globalThis.Atomics.load);
});

test('import exports each name', async () => {
	const found = await import(pathToFileURL(place).href);
	const names = Object.keys(found).filter((name) => !['default', 'module.exports'].includes(name));
	assert.deepStrictEqual(names.sort(), Object.keys(memwait).sort());
	assert.strictEqual(found.default, memwait);
	names.forEach((name) => assert.strictEqual(found[name], memwait[name]));
});

test('index.d.ts declares all functions, classes and members', () => {
	const types = fs.readFileSync(path.join(path.dirname(place), 'index.d.ts'), 'utf8');
	const namesOf = (text, pattern) => [...new Set([...text.matchAll(pattern)].map(([, name]) => name))].sort();
	assert.deepStrictEqual(namesOf(types, /^export (?:function|const|class) (\w+)/gm), Object.keys(memwait).sort());
	const classes = [...types.matchAll(/^(?:export|declare) class (\w+)[^]*?^}/gm)];
	const [SharedObject, Lock] = ['Condition', 'Mutex'].map((name) => Object.getPrototypeOf(memwait[name]));
	assert.strictEqual(classes.length, 10);
	for (const [text, name] of classes) {
		const Class = memwait[name] ?? { SharedObject, Lock }[name];
		const own = (object, ...without) => {
			return Object.getOwnPropertyNames(object).filter((key) => !without.includes(key)).sort();
		};
		assert.deepStrictEqual(namesOf(text, /^\tstatic (?:readonly )?(\w+)/gm),
				       own(Class, 'length', 'name', 'prototype'));
		assert.deepStrictEqual(namesOf(text, /^\t(?!static |constructor)(?:readonly )?(\w+)/gm),
				       own(Class.prototype, 'constructor'));
	}
});

test('only a shared Int32Array or BigInt64Array is accepted', () => {
	const others = [null, undefined, true, 0, '', Symbol(), {}, [], new DataView(shared), shared,
			Object.create(Int32Array.prototype)];
	for (const Type of [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Uint32Array,
			    Float32Array, Float64Array, BigUint64Array])
		others.push(new Type(shared), new Type(buffer));
	for (const other of others) {
		assert.throws(() => notify(other, poison, poison), TypeError);
		for (const f of waits)
			assert.throws(() => f(other, poison, poison, poison), TypeError);
	}
	for (const own of [new Int32Array(4), new BigInt64Array(4), new Int32Array(new ArrayBuffer(0))]) {
		for (const f of waits)
			assert.throws(() => f(own, poison, poison, poison), TypeError);
	}
	// An array that is not shared has no waiters, but its arguments are checked.
	const own = new Int32Array(4);
	assert.strictEqual(notify(own, 0, 1), 0);
	assert.strictEqual(notify(own), 0);
	assert.throws(() => notify(own, poison, 0), evaluated);
	assert.throws(() => notify(own, 0, poison), evaluated);
	assert.throws(() => notify(own, 4, 0), RangeError);
});

test('an index is an integer within the array', () => {
	for (const view of views) {
		const wrong = [-1, -1.5, view.length, view.length + 1, Infinity, -Infinity, 2 ** 53, '-1',
			       { valueOf: () => -1 }];
		for (const index of wrong) {
			assert.throws(() => notify(view, index, poison), RangeError);
			for (const f of waits)
				assert.throws(() => f(view, index, poison, poison), RangeError);
		}
		for (const index of [Symbol(), 1n]) {
			assert.throws(() => notify(view, index), TypeError);
			for (const f of waits)
				assert.throws(() => f(view, index, zero(view), 0), TypeError);
		}
		for (const index of [undefined, NaN, null, false, -0, 0.9, -0.9, '0', '', [], 'x', {},
				     { toString: () => '0', valueOf: undefined }]) {
			assert.strictEqual(notify(view, index), 0);
			assert.strictEqual(wait(view, index, zero(view), 0), 'timed-out');
			assert.deepStrictEqual(waitAsync(view, index, zero(view), 0), asyncOf('timed-out'));
		}
	}
});

test('a value is an Int32 or a BigInt64', () => {
	const [view, , big] = views;
	view[5] = -2;
	big[5] = -2n;
	for (const value of [-2, 0xfffffffe, 2 ** 32 - 2, -2.7, '-2', { valueOf: () => -2 }])
		assert.strictEqual(wait(view, 5, value, 0), 'timed-out');
	for (const value of [-2n, 2n ** 64n - 2n, '-2', { valueOf: () => -2n }])
		assert.strictEqual(wait(big, 5, value, 0), 'timed-out');
	for (const value of [undefined, null, NaN, Infinity, 2 ** 32, false])
		assert.strictEqual(wait(view, 0, value, 0), 'timed-out');
	assert.strictEqual(wait(big, 0, false, 0), 'timed-out');
	for (const f of waits) {
		assert.throws(() => f(view, 0, 0n, poison), TypeError);
		assert.throws(() => f(view, 0, Symbol(), poison), TypeError);
		assert.throws(() => f(view, 0, poison, Symbol()), evaluated);
		for (const value of [0, undefined, null, Symbol()])
			assert.throws(() => f(big, 0, value, poison), TypeError);
		assert.throws(() => f(big, 0, 'x', poison), SyntaxError);
		assert.throws(() => f(big, 0, poison, Symbol()), evaluated);
	}
});

test('not equal, for each of the 64 bits', () => {
	for (const view of views) {
		for (let bit = 0; bit < view.BYTES_PER_ELEMENT * 8; bit++) {
			const value = view instanceof BigInt64Array ? 1n << BigInt(bit) : 1 << bit;
			assert.strictEqual(wait(view, 1, value, Infinity), 'not-equal');
			assert.deepStrictEqual(waitAsync(view, 1, value), asyncOf('not-equal'));
		}
		// The timeout is converted before the value is compared.
		for (const f of waits) {
			const one = view instanceof BigInt64Array ? 1n : 1;
			assert.throws(() => f(view, 1, one, poison), evaluated);
			assert.throws(() => f(view, 1, one, Symbol()), TypeError);
		}
	}
});

test('a timeout is a number', async () => {
	for (const view of views) {
		for (const timeout of [0, -1, -Infinity, null, false, '', [], '-5', { valueOf: () => 0 }]) {
			assert.strictEqual(wait(view, 0, zero(view), timeout), 'timed-out');
			assert.deepStrictEqual(waitAsync(view, 0, zero(view), timeout), asyncOf('timed-out'));
		}
		for (const timeout of [Symbol(), 1n])
			waits.forEach((f) => assert.throws(() => f(view, 0, zero(view), timeout), TypeError));
		for (const timeout of [true, '2', 0.5, Number.MIN_VALUE, { toString: () => '1', valueOf: undefined }]) {
			assert.strictEqual(wait(view, 0, zero(view), timeout), 'timed-out');
			const result = waitAsync(view, 0, zero(view), timeout);
			assert.strictEqual(result.async, true);
			assert.strictEqual(await result.value, 'timed-out');
		}
		// Without a timeout, only a notify ends a wait.
		const endless = [[], [undefined], [NaN], [Infinity], ['x'], [{}], [1e300]];
		const results = endless.map((t) => waitAsync(view, 0, zero(view), ...t));
		assert.strictEqual(memwait.waiters(view, 0), endless.length);
		assert.strictEqual(notify(view, 0), endless.length);
		for (const { async, value } of results) {
			assert.strictEqual(async, true);
			assert.strictEqual(await value, 'ok');
		}
	}
});

test('a timeout is not early', async () => {
	for (const ms of [1, 7.3, 20]) {
		const start = process.hrtime.bigint();
		assert.strictEqual(wait(views[0], 0, 0, ms), 'timed-out');
		const between = process.hrtime.bigint();
		assert.ok(between - start >= BigInt(ms * 1e6));
		assert.strictEqual(await waitAsync(views[0], 0, 0, ms).value, 'timed-out');
		assert.ok(process.hrtime.bigint() - between >= BigInt(ms * 1e6));
	}
});

test('waitAsync: an ordinary object, and a promise', async () => {
	const result = waitAsync(views[1], 0, 0);
	assert.deepStrictEqual(Object.entries(Object.getOwnPropertyDescriptors(result)), [
		['async', { value: true, writable: true, enumerable: true, configurable: true }],
		['value', { value: result.value, writable: true, enumerable: true, configurable: true }],
	]);
	assert.strictEqual(Object.getPrototypeOf(result), Object.prototype);
	assert.ok(result.value instanceof Promise);
	assert.strictEqual(notify(views[1], 0, 1), 1);
	// The event loop settles the promise; a call of notify() never does.
	let settled = false;
	result.value.then(() => settled = true);
	await null;
	assert.strictEqual(settled, false);
	assert.strictEqual(await result.value, 'ok');
});

test('notify: the count, and the order of waiters', async () => {
	for (const view of views) {
		const order = [];
		const promises = [0, 1, 2, 3, 4, 5, 6].map((n) => {
			return waitAsync(view, 3, zero(view)).value.then((s) => order.push([n, s]));
		});
		for (const none of [0, -1, -Infinity, NaN, null, false, 0.9, 'x', '', {}])
			assert.strictEqual(notify(view, 3, none), 0);
		assert.throws(() => notify(view, 3, Symbol()), TypeError);
		assert.throws(() => notify(view, 3, 1n), TypeError);
		assert.throws(() => notify(view, 3, poison), evaluated);
		assert.strictEqual(notify(view, 2), 0);
		assert.strictEqual(memwait.waiters(view, 3), 7);
		assert.strictEqual(notify(view, 3, 1), 1);
		assert.strictEqual(notify(view, 3, 2.9), 2);
		assert.strictEqual(notify(view, 3, true), 1);
		assert.strictEqual(notify(view, 3, '1'), 1);
		assert.strictEqual(notify(view, 3, 2 ** 32 + 1), 2);
		assert.strictEqual(notify(view, 3), 0);
		await Promise.all(promises);
		assert.deepStrictEqual(order, [0, 1, 2, 3, 4, 5, 6].map((n) => [n, 'ok']));
	}
});

test('only a notify of the word wakes', async () => {
	const view = views[0];
	const { value } = waitAsync(view, 8, 0, 30);
	for (const name of ['add', 'sub', 'and', 'or', 'xor', 'exchange', 'store'])
		Atomics[name](view, 8, 1);
	Atomics.compareExchange(view, 8, 1, 5);
	notify(view, 9);
	notify(view, 7);
	assert.strictEqual(await value, 'timed-out');
});

test('a word is the same wherever it is mapped', async () => {
	const other = new Int32Array(memwait.map(file, 8192));
	const { value } = waitAsync(views[0], 11, 0);
	assert.strictEqual(notify(other, 11), 1);
	assert.strictEqual(await value, 'ok');
	// The lower half of a 64-bit word has the same address as the word.
	const half = waitAsync(new BigInt64Array(buffer), 4, 0n);
	assert.strictEqual(notify(other, 8), 1);
	assert.strictEqual(await half.value, 'ok');
	// The array is in the memory of a descriptor.
	const fd = memwait.memfd(4096);
	const [a, b] = [0, 1].map(() => new Int32Array(memwait.map(fd, 4096)));
	fs.closeSync(fd);
	const again = waitAsync(a, 1023, 0);
	assert.strictEqual(notify(b, 1023), 1);
	assert.strictEqual(await again.value, 'ok');
});

test('an array of another realm', async () => {
	const view = vm.runInNewContext('new Int32Array(new SharedArrayBuffer(16))');
	const { value } = waitAsync(view, 0, 0);
	assert.strictEqual(notify(view, 0), 1);
	assert.strictEqual(await value, 'ok');
	// Properties that a program overrides have no effect.
	const liar = new Int32Array(shared);
	Object.defineProperty(liar, 'length', { value: 1e9 });
	Object.defineProperty(liar, 'buffer', { value: buffer });
	assert.throws(() => notify(liar, 1e6), RangeError);
});

test('map: bad input', () => {
	for (const size of [0, -1, 1.5, NaN, Infinity])
		assert.throws(() => memwait.map(file, size), RangeError);
	for (const size of [undefined, '4096', 10n, {}])
		assert.throws(() => memwait.map(file, size), TypeError);
	for (const fd of [-1, 1.5, NaN, 2 ** 40])
		assert.throws(() => memwait.map(fd, 1), RangeError);
	assert.throws(() => memwait.map(9999, 1), { code: 'EBADF' });
	assert.throws(() => memwait.map({}, 1), TypeError);
	assert.throws(() => memwait.map('/nowhere/at/all', 1), { code: 'ENOENT' });
	assert.throws(() => memwait.memfd(-1), RangeError);
	// The message of a failed mmap(2) does not mention the device.
	const fd = fs.openSync(file, 'r');
	assert.throws(() => memwait.map(fd, 64), { code: 'EACCES', message: 'Permission denied' });
	assert.throws(() => memwait.map('/dev/null', 64), { code: 'ENODEV', message: 'No such device' });
	fs.closeSync(fd);
	// A file grows, and does not shrink.
	assert.strictEqual(memwait.map(file, 10).byteLength, 10);
	assert.strictEqual(fs.statSync(file).size, 65536);
});

test('map: a full file system', () => {
	const path = `${file}-full`, { blocks, bsize } = fs.statfsSync('/dev/shm');
	try {
		assert.throws(() => memwait.map(path, (blocks + 1) * bsize), { code: 'ENOSPC' });
		assert.ok(!fs.existsSync(path));
		// An existing file is not changed.
		fs.writeFileSync(path, 'text');
		assert.throws(() => memwait.map(path, (blocks + 1) * bsize), { code: 'ENOSPC' });
		assert.strictEqual(fs.readFileSync(path, 'latin1'), 'text');
	} finally {
		fs.rmSync(path, { force: true });
	}
});

// Linux refuses to open this file with O_CREAT, even for root.
test('map: a file of another user in a sticky directory', () => {
	const setting = '/proc/sys/fs/protected_regular', was = fs.readFileSync(setting);
	const directory = fs.mkdtempSync('/dev/shm/sticky-'), path = `${directory}/file`;
	try {
		fs.writeFileSync(setting, '1');
		fs.chmodSync(directory, 0o1777);
		fs.writeFileSync(path, '');
		fs.chmodSync(path, 0o666);
		fs.chownSync(path, 65534, 65534);
		assert.throws(() => fs.openSync(path, 'a+'), { code: 'EACCES' });
		assert.strictEqual(memwait.map(path, 64).byteLength, 64);
	} finally {
		fs.writeFileSync(setting, was);
		fs.rmSync(directory, { recursive: true });
	}
});

test('a detached buffer', async () => {
	const fd = memwait.memfd(4096);
	const mapped = memwait.map(fd, 4096), other = new Int32Array(memwait.map(fd, 4096));
	fs.closeSync(fd);
	const view = new Int32Array(mapped);
	const mutex = memwait.Mutex.init(mapped, 64);
	const pending = waitAsync(view, 0, 0);
	eval('%ArrayBufferDetach(mapped)');
	// Later versions of Node.js do not allow the buffer to be detached.
	if (view.length) {
		notify(view, 0);
		return;
	}
	assert.throws(() => wait(view, poison, 0), TypeError);
	assert.throws(() => waitAsync(view, poison, 0), TypeError);
	assert.throws(() => notify(view, poison), TypeError);
	assert.throws(() => new memwait.Mutex(mapped), TypeError);
	// Pending waits and objects still work, because they hold the mapping.
	global.gc();
	await mutex.lock();
	mutex.unlock();
	assert.strictEqual(notify(other, 0), 1);
	assert.strictEqual(await pending.value, 'ok');
});

test('a shrunk view', () => {
	// The view is shrunk while an argument is converted.
	const mapped = memwait.map(memwait.memfd(64), 64);
	const view = new Int32Array(mapped);
	const detach = { valueOf() { eval('%ArrayBufferDetach(mapped)'); return 0; } };
	try {
		assert.strictEqual(wait(view, 1, detach, 10), 'timed-out');
	} catch (error) {
		assert.ok(error instanceof RangeError && view.length === 0);
		assert.throws(() => notify(view, 1, detach), TypeError);
	}
});

test('threads and promises in one queue', async () => {
	const view = new Int32Array(shared);
	view.fill(0);
	const order = [];
	const first = waitAsync(view, 20, 0).value.then((s) => order.push(`first ${s}`));
	const thread = worker(() => send(memwait.wait(new Int32Array(buffer), 20, 0)), shared);
	await until(() => memwait.waiters(view, 20) === 2);
	const third = waitAsync(view, 20, 0).value.then((s) => order.push(`third ${s}`));
	assert.strictEqual(notify(view, 20, 1), 1);
	await first;
	assert.strictEqual(notify(view, 20, 1), 1);
	assert.strictEqual(await thread.next(), 'ok');
	assert.deepStrictEqual(order, ['first ok']);
	assert.strictEqual(notify(view, 20, 1), 1);
	await third;
	assert.deepStrictEqual(order, ['first ok', 'third ok']);
	await thread.ended;
});
