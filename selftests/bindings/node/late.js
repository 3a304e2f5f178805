// SPDX-License-Identifier: GPL-2.0-only
'use strict';
/*
 * A result that arrives while a worker is being terminated must be passed to the next waiter. The
 * test needs late.so to be preloaded, which stops a thread at that moment. It also loads the
 * package twice, as two dependent packages do.
 */
const { assert, buffer, file, memwait, place, sleepers, test, runTests, until, worker } = require('./harness');
const { Mutex, RWLock, Condition, Semaphore, Channel, waitAsync, notify, Atomics } = memwait;
const fs = require('fs');

const view = new Int32Array(buffer);
const late = new Int32Array(memwait.map(process.env.MEMWAIT_LATE, 4096));

// Terminates a worker that late.so has stopped. Before that, @come makes results arrive for the
// worker.
async function terminateLate(thread, come)
{
	await until(() => Atomics.load(late, 0) === 2);
	come?.();
	// The engine requests the termination within this call.
	const end = thread.terminate();
	Atomics.store(late, 0, 3);
	assert.strictEqual(await end, 1);
}

test('promises', async () => {
	const mutex = Mutex.init(buffer, 64, { fair: true }), semaphore = Semaphore.init(buffer, 128);
	const signalled = new Mutex(buffer, 192), condition = new Condition(buffer, 256);
	const timed = new Mutex(buffer, 320), nobody = new Condition(buffer, 384);
	const channel = Channel.init(buffer, 512, 4, 1), rwlock = RWLock.init(buffer, 448, { fair: true });
	await mutex.lock();
	await rwlock.writer.lock();
	Atomics.store(late, 0, 0);
	const thread = worker(() => {
		new memwait.Mutex(buffer, 64).lock();
		new memwait.RWLock(buffer, 448).writer.lock();
		new memwait.Semaphore(buffer, 128).acquire();
		new memwait.Channel(buffer, 512).recv();
		memwait.waitAsync(i32, 0, 0);
		const [signalled, timed] = [192, 320].map((offset) => new memwait.Mutex(buffer, offset));
		signalled.lockSync();
		new memwait.Condition(buffer, 256).wait(signalled);
		timed.lockSync();
		// The words of late.so are not in the same file as the objects.
		const late = new Int32Array(memwait.map(process.env.MEMWAIT_LATE, 4096));
		Atomics.store(late, 0, 1);
		// If the deadline has passed when the wait begins, the mutex is locked again without the loop.
		const nobody = new memwait.Condition(buffer, 384);
		for (let timeout = 1; ; timeout *= 2) {
			nobody.wait(timed, { timeout });
			if (timed.tryLock())
				break;
		}
		timed.unlock();
	});
	await until(() => Atomics.load(late, 0) === 2);
	await signalled.lock();
	const next = [mutex.lock(), semaphore.acquire(), rwlock.reader.lock(), channel.recv(),
		      waitAsync(view, 0, 0).value, condition.wait(signalled)];
	await terminateLate(thread, () => {
		mutex.unlock();
		rwlock.writer.unlock();
		semaphore.release();
		assert.strictEqual(channel.trySend(Uint8Array.of(1, 2, 3, 4)), true);
		assert.strictEqual(notify(view, 0, 1), 1);
		condition.notify();
	});
	const [, , , ...got] = await Promise.all(next);
	assert.deepStrictEqual(got, [Uint8Array.of(1, 2, 3, 4), 'ok', true]);
	for (const free of [signalled, timed, mutex]) {
		if (free === timed)
			assert.strictEqual(free.tryLock(), true);
		free.unlock();
	}
	nobody.destroy();
});

test('blocking', async () => {
	const semaphore = Semaphore.init(buffer, 128);
	Atomics.store(late, 0, 1);
	const thread = worker(() => new memwait.Semaphore(buffer, 128).acquireSync());
	await until(() => sleepers(128, Semaphore.SIZE) > 0);
	semaphore.release();
	await terminateLate(thread);
	assert.strictEqual(semaphore.tryAcquire(), true);
});

test('an item that was in the channel', async () => {
	const channel = Channel.init(buffer, 512, 4, 1);
	assert.strictEqual(channel.trySend(Uint8Array.of(1, 2, 3, 4)), true);
	Atomics.store(late, 0, 1);
	await terminateLate(worker(() => new memwait.Channel(buffer, 512).tryRecv()));
	assert.deepStrictEqual(channel.tryRecv(), Uint8Array.of(1, 2, 3, 4));
});

test('an item, while another thread sends', async () => {
	const channel = Channel.init(buffer, 512, 4, 1);
	assert.strictEqual(channel.trySend(Uint8Array.of(1, 2, 3, 4)), true);
	Atomics.store(late, 2, 5);
	Atomics.store(late, 0, 1);
	await terminateLate(worker(() => new memwait.Channel(buffer, 512).tryRecv()));
	assert.strictEqual(Atomics.exchange(late, 2, 0), 0);
	assert.deepStrictEqual(channel.tryRecv(), Uint8Array.of(1, 2, 3, 4));
});

test('a condition whose mutex cannot be waited for', async () => {
	const mutex = Mutex.init(buffer, 64), condition = Condition.init(buffer, 128);
	const thread = worker(() => {
		const mutex = new memwait.Mutex(buffer, 64);
		const guard = mutex.lockSync();
		try {
			new memwait.Condition(buffer, 128).waitSync(mutex);
		} catch ({ code }) {
			guard.release();
			send(code);
		}
	});
	await until(() => sleepers(128, Condition.SIZE) > 0);
	assert.strictEqual(mutex.tryLock(), true);
	Atomics.store(late, 1, 1);
	condition.notify();
	assert.strictEqual(await thread.next(), 'ENOSPC');
	Atomics.store(late, 1, 0);
	assert.strictEqual(mutex.tryLock(), false);
	mutex.unlock();
	await thread.ended;
});

function loadAgain()
{
	Object.keys(require.cache).filter((name) => /memwait\.node$|index\.js$/.test(name))
		.forEach((name) => delete require.cache[name]);
	return require(place);
}

function descriptors()
{
	return fs.readdirSync('/proc/self/fd').length;
}

test('loaded many times', async () => {
	let once;
	for (let i = 0; i < 10; i++) {
		const again = loadAgain(), other = new Int32Array(again.map(file, 4096));
		assert.strictEqual(await again.waitAsync(other, 0, 0, 1).value, 'timed-out');
		assert.strictEqual(again.wait(other, 0, 0, 1), 'timed-out');
		once ??= descriptors();
	}
	assert.strictEqual(descriptors(), once);
});

test('loaded twice', async () => {
	const again = loadAgain();
	assert.notStrictEqual(again, memwait);
	const other = new Int32Array(again.map(file, 4096));
	const first = waitAsync(view, 0, 0).value, second = again.waitAsync(other, 0, 0).value;
	assert.strictEqual(again.notify(other, 0, 1), 1);
	assert.strictEqual(await first, 'ok');
	assert.strictEqual(notify(view, 0, 1), 1);
	assert.strictEqual(await second, 'ok');
	assert.strictEqual(again.wait(other, 0, 0, 1), 'timed-out');
	// The process exits while these operations are pending in both copies of the package.
	waitAsync(view, 0, 0);
	again.waitAsync(other, 0, 0);
	new again.Mutex(other.buffer, 64).lock();
});

process.on('exit', () => fs.rmSync(process.env.MEMWAIT_LATE, { force: true }));
runTests();
