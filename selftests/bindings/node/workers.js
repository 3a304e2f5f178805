// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// Tests of blocking waits of threads, and of the ways in which these waits end.
const { assert, buffer, file, limit, memwait, skip, sleepers, takesOne, test, until,
	wants, worker } = require('./harness');
const { Mutex, RWLock, Condition, Semaphore, Barrier, WaitGroup, Event, Channel } = memwait;
const { waitAsync, notify } = memwait;
const { spawnSync } = require('child_process');
const fs = require('fs');
const path = require('path');

const view = new Int32Array(buffer);

test('worker: blocks until a notify or its timeout', async () => {
	const thread = worker(() => {
		send(memwait.wait(i32, 0, 0));
		send(memwait.wait(i64, 1, 0n, 60000));
		send(memwait.wait(i32, 0, 0, 20));
		const mutex = new memwait.Mutex(buffer, 64);
		mutex.lockSync();
		mutex.unlock();
		send('locked and unlocked');
	});
	const mutex = Mutex.init(buffer, 64);
	mutex.lockSync();
	await until(() => memwait.waiters(view, 0) === 1);
	assert.strictEqual(notify(view, 0), 1);
	assert.strictEqual(await thread.next(), 'ok');
	await until(() => memwait.waiters(view, 2) === 1);
	assert.strictEqual(notify(new BigInt64Array(buffer), 1), 1);
	assert.strictEqual(await thread.next(), 'ok');
	assert.strictEqual(await thread.next(), 'timed-out');
	await until(() => sleepers(64, Mutex.SIZE) > 0);
	mutex.unlock();
	assert.strictEqual(await thread.next(), 'locked and unlocked');
	assert.strictEqual(await thread.ended, 0);
});

test('a condition wait with timeout 0 lets others acquire the mutex', async () => {
	const mutex = Mutex.init(buffer, 64), condition = Condition.init(buffer, 128);
	const thread = worker(() => {
		const mutex = new memwait.Mutex(buffer, 64), condition = new memwait.Condition(buffer, 128);
		mutex.lockSync();
		send('locked');
		while (i32[0] === 0)
			condition.waitSync(mutex, { timeout: 0 });
		mutex.unlock();
	});
	const notify = (n) => mutex.withLock(() => {
		view[0] = n;
		condition.notify();
	});
	assert.strictEqual(await thread.next(), 'locked');
	await notify(1);
	await thread.ended;
	await mutex.lock();
	const notified = notify(2);
	while (view[0] === 1)
		await condition.wait(mutex, { timeout: 0 });
	mutex.unlock();
	await notified;
	condition.destroy();
	mutex.destroy();
});

test('worker: a blocked thread retains its queue position', async () => {
	// The wait is divided into slices, and messages to the worker wake its event loop.
	const thread = worker(() => send(memwait.wait(i32, 0, 0)));
	await until(() => memwait.waiters(view, 0) === 1);
	const second = waitAsync(view, 0, 0);
	for (let i = 0; i < 10; i++) {
		thread.thread.postMessage(i);
		await new Promise((resolve) => setTimeout(resolve, 30));
		assert.strictEqual(memwait.waiters(view, 0), 2);
	}
	assert.strictEqual(notify(view, 0, 1), 1);
	assert.strictEqual(await thread.next(), 'ok');
	assert.strictEqual(notify(view, 0), 1);
	assert.strictEqual(await second.value, 'ok');
	await thread.ended;
});

test('terminate: ends each blocking wait immediately, and nothing is consumed', async () => {
	const mutex = Mutex.init(buffer, 64, { fair: true }), held = Mutex.init(buffer, 128);
	const condition = Condition.init(buffer, 192), semaphore = Semaphore.init(buffer, 256);
	const channel = Channel.init(buffer, 512, 4, 1), full = Channel.init(buffer, 1024, 4, 1);
	const rwlock = RWLock.init(buffer, 320), barrier = Barrier.init(buffer, 384, 2);
	const group = WaitGroup.init(buffer, 448, 1), event = Event.init(buffer, 500);
	await mutex.lock();
	await rwlock.reader.lock();
	await full.send(new Uint8Array(4));
	const blocked = [
		[() => memwait.wait(i32, 0, 0), 0, 4],
		[() => new memwait.Mutex(buffer, 64).lockSync(), 64, 32],
		[() => {
			const mutex = new memwait.Mutex(buffer, 128);
			mutex.lockSync();
			new memwait.Condition(buffer, 192).waitSync(mutex);
		}, 192, 48],
		[() => new memwait.Semaphore(buffer, 256).acquireSync(), 256, 16],
		[() => new memwait.Channel(buffer, 512).recvSync(), 512, 192],
		[() => new memwait.Channel(buffer, 1024).sendSync(new Uint8Array(4)), 1024, 192],
		[() => new memwait.RWLock(buffer, 320).writer.lockSync(), 320, 56],
		[() => new memwait.Barrier(buffer, 384).waitSync(), 384, 32],
		[() => new memwait.WaitGroup(buffer, 448).waitSync(), 448, 32],
		[() => new memwait.Event(buffer, 500).waitSync(), 500, 4],
	];
	let best = Infinity;
	for (const [run, place, size] of blocked) {
		const thread = worker(`() => { (${run})(); send('the wait returned'); }`);
		await until(() => sleepers(place, size) > 0);
		const start = process.hrtime.bigint();
		assert.strictEqual(await thread.terminate(), 1);
		best = Math.min(best, Number(process.hrtime.bigint() - start) / 1e6);
		assert.strictEqual(sleepers(place, size), 0);
	}
	console.log(`# the fastest end took ${best.toFixed(1)} ms`);
	mutex.unlock();
	await mutex.lock();
	assert.strictEqual(held.tryLock(), true);
	semaphore.release();
	assert.strictEqual(semaphore.tryAcquire(), true);
	assert.strictEqual(channel.trySend(new Uint8Array(4)), true);
	assert.strictEqual(channel.length, 1);
	assert.strictEqual(full.length, 1);
	condition.destroy();
	rwlock.reader.unlock();
	assert.strictEqual(rwlock.writer.tryLock(), true);
	// The arrival of the terminated thread no longer counts.
	await assert.rejects(barrier.wait({ timeout: 2 }), { code: 'ETIMEDOUT' });
	group.done();
	group.destroy();
	event.destroy();
});

test('terminate: a wake-up goes to the next waiter', async () => {
	const thread = worker(() => {
		memwait.wait(i32, 0, 0);
		for (;;)
			;
	});
	await until(() => memwait.waiters(view, 0) === 1);
	const second = waitAsync(view, 0, 0);
	const end = thread.terminate();
	await end;
	assert.strictEqual(notify(view, 0, 1), 1);
	assert.strictEqual(await second.value, 'ok');
});

test('terminate: pending promises end without a report', async () => {
	const mutex = Mutex.init(buffer, 64, { fair: true });
	const channel = Channel.init(buffer, 512, 4, 1);
	await mutex.lock();
	const thread = worker(() => {
		for (let i = 0; i < 100; i++)
			memwait.waitAsync(i32, 0, 0).value.then(() => send('the wait returned'));
		new memwait.Mutex(buffer, 64).lock();
		new memwait.Channel(buffer, 512).recv();
		send('begun');
	});
	assert.strictEqual(await thread.next(), 'begun');
	assert.strictEqual(memwait.waiters(view, 0), 100);
	const last = waitAsync(view, 0, 0);
	const next = mutex.lock();
	assert.strictEqual(await thread.terminate(), 1);
	assert.strictEqual(notify(view, 0), 1);
	assert.strictEqual(await last.value, 'ok');
	mutex.unlock();
	await next;
	assert.strictEqual(channel.trySend(new Uint8Array(4)), true);
	assert.strictEqual(channel.length, 1);
});

test('terminate: results for a busy thread are passed on', async () => {
	const channel = Channel.init(buffer, 512, 4, 1);
	const thread = worker(() => {
		memwait.waitAsync(i32, 0, 0);
		new memwait.Channel(buffer, 512).recv();
		setTimeout(() => {
			send('busy');
			for (;;)
				;
		}, 0);
	});
	assert.strictEqual(await thread.next(), 'busy');
	const second = waitAsync(view, 0, 0);
	assert.strictEqual(notify(view, 0, 1), 1);
	assert.strictEqual(channel.trySend(Uint8Array.of(1, 2, 3, 4)), true);
	assert.strictEqual(await thread.terminate(), 1);
	assert.strictEqual(await second.value, 'ok');
	assert.deepStrictEqual(channel.tryRecv(), Uint8Array.of(1, 2, 3, 4));
	channel.destroy();
});

test('terminate: other results are passed on while a callback computes', () => {
	const computes = `() => {
		send('busy');
		for (;;)
			;
	}`;
	return takesOne(() => worker(`() => (${wants})(${computes})`), async (thread) => {
		assert.strictEqual(await thread.next(), 'busy');
		assert.strictEqual(await thread.terminate(), 1);
	});
});

test('process.exit() of a worker: other results are passed on', () => {
	return takesOne(() => worker(`() => (${wants})(() => process.exit(7))`), async (thread) => {
		assert.strictEqual(await thread.ended, 7);
	});
});

function runLate()
{
	const late = `${file}-late`;
	fs.writeFileSync(late, Buffer.alloc(4096));
	const { stdout, stderr, status } = spawnSync(process.execPath, [path.join(__dirname, 'late.js')], {
		encoding: 'utf8', timeout: limit(240000),
		env: { ...process.env, MEMWAIT_LATE: late, LD_PRELOAD: path.join(__dirname, 'late.so') },
	});
	console.log(stdout.replace(/^/gm, '# '));
	assert.strictEqual(stderr, '');
	assert.strictEqual(status, 0);
}

const late = 'terminate: results that arrive at that moment are passed on';

if (process.env.LD_PRELOAD)
	skip(late, 'sanitizers are preloaded');
else
	test(late, runLate);

test('process.exit() of a worker', async () => {
	const thread = worker(() => {
		memwait.waitAsync(i32, 0, 0).value.then(() => process.exit(7));
		memwait.waitAsync(i32, 1, 0);
		send('begun');
	});
	assert.strictEqual(await thread.next(), 'begun');
	assert.strictEqual(notify(view, 0), 1);
	assert.strictEqual(await thread.ended, 7);
	assert.strictEqual(memwait.waiters(view, 1), 0);
});

test('several workers and promises use one mutex and one channel', async () => {
	const mutex = Mutex.init(buffer, 64);
	const channel = Channel.init(buffer, 512, 4, 4);
	const work = () => {
		const mutex = new memwait.Mutex(buffer, 64), channel = new memwait.Channel(buffer, 512);
		for (let i = 0; i < 200; i++) {
			mutex.lockSync();
			i32[0]++;
			mutex.unlock();
			channel.sendSync(Int32Array.of(i));
		}
	};
	const threads = [worker(work), worker(work)];
	let sum = 0;
	for (let i = 0; i < 400; i++) {
		sum += new Int32Array((await channel.recv()).buffer)[0];
		await mutex.withLock(() => view[0]++);
	}
	assert.strictEqual(sum, 2 * 199 * 100);
	await Promise.all(threads.map(({ ended }) => ended));
	assert.strictEqual(view[0], 800);
	assert.strictEqual(channel.length, 0);
});

test('robust: a worker exits with the mutex locked', async () => {
	const states = [];
	const mutex = Mutex.init(buffer, 64, { robust: true, repair: () => states.push(view[0]) });
	const thread = worker(() => {
		new memwait.Mutex(buffer, 64).lockSync();
		i32[0] = 5;
		send('locked');
	});
	assert.strictEqual(await thread.next(), 'locked');
	await mutex.lock();
	assert.deepStrictEqual(states, [5]);
	mutex.unlock();
	await mutex.lock();
	mutex.unlock();
	assert.deepStrictEqual(states, [5]);
	await thread.ended;
});

test('robust: a worker exits as the writer', async () => {
	const repaired = [];
	const rwlock = RWLock.init(buffer, 64, { robust: true, repair: (lock) => repaired.push(lock) });
	const thread = worker(() => {
		new memwait.RWLock(buffer, 64).writer.lockSync();
		send('locked');
	});
	assert.strictEqual(await thread.next(), 'locked');
	const { reader, writer } = rwlock;
	const readers = await Promise.all([reader.lock(), reader.lock({ timeout: limit(10000) })]);
	await thread.ended;
	for (const take of [() => reader.lockSync(), () => reader.tryLock(), () => reader.lock({ timeout: 0 })]) {
		// The reader that repaired the lock now shares the lock with other readers.
		assert.strictEqual(writer.tryLock(), false);
		assert.strictEqual(reader.tryLock(), true);
		reader.unlock();
		readers.splice(0).forEach((guard) => guard.release());
		const next = worker(() => new memwait.RWLock(buffer, 64).writer.lockSync());
		await next.ended;
		const guard = await take();
		readers.push(guard === true ? { release: () => reader.unlock() } : guard);
	}
	readers[0].release();
	assert.deepStrictEqual(repaired, [reader, reader, reader, reader]);
	writer.lockSync().release();
	rwlock.destroy();
	// Without a repair function the lock becomes unusable.
	const strict = RWLock.init(buffer, 64, { robust: true });
	const another = worker(() => new memwait.RWLock(buffer, 64).writer.lockSync());
	await another.ended;
	assert.throws(() => strict.reader.lockSync(), { code: 'EOWNERDEAD' });
	await assert.rejects(strict.writer.lock(), { code: 'ENOTRECOVERABLE' });
});

test('worker: a barrier, a wait group and an event', async () => {
	const barrier = Barrier.init(buffer, 64, 2), group = WaitGroup.init(buffer, 128, 1);
	const event = Event.init(buffer, 192);
	const thread = worker(() => {
		const event = new memwait.Event(buffer, 192), barrier = new memwait.Barrier(buffer, 64);
		const met = barrier.waitSync();
		send([met, event.waitSync()]);
		new memwait.WaitGroup(buffer, 128).done();
	});
	const met = await barrier.wait();
	await until(() => sleepers(192, Event.SIZE) === 1);
	event.set();
	assert.deepStrictEqual(await thread.next(), [!met, true]);
	assert.strictEqual(await group.wait(), true);
	await thread.ended;
});

test('robust: a repair that fails in a wait', async () => {
	const error = Object.assign(new Error('mine'), { code: 'ETIMEDOUT' });
	const mutex = Mutex.init(buffer, 64, { robust: true, repair: () => { throw error; } });
	const condition = Condition.init(buffer, 128);
	const waits = mutex.withLock(() => condition.wait(mutex));
	await until(() => sleepers(128, Condition.SIZE) > 0);
	const thread = worker(() => {
		new memwait.Mutex(buffer, 64).lockSync();
		new memwait.Condition(buffer, 128).notify();
	});
	await assert.rejects(waits, (other) => other === error);
	await assert.rejects(mutex.lock(), { code: 'ENOTRECOVERABLE' });
	await thread.ended;
});

test('robust: a repair is synchronous', async () => {
	const mutex = Mutex.init(buffer, 64, { robust: true, repair: async () => undefined });
	const thread = worker(() => new memwait.Mutex(buffer, 64).lockSync());
	await thread.ended;
	await assert.rejects(mutex.lock(), TypeError);
	await assert.rejects(mutex.lock(), { code: 'ENOTRECOVERABLE' });
});
