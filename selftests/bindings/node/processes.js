// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// Processes: shared words and objects, deaths, and the waits that keep a process alive.
const { assert, buffer, child, limit, memwait, place, sleepers, takesOne, test, until, wants } = require('./harness');
const { Mutex, Semaphore, Channel, waitAsync, notify } = memwait;
const { spawnSync } = require('child_process');

const view = new Int32Array(buffer);

// The children start while the preceding tests run.
let children;
setTimeout(() => {
	children = Array.from({ length: 7 }, child);
}, 1000);

async function next()
{
	await until(() => children);
	return children.shift();
}

test('processes: a lock, a channel and words between loops and threads', async () => {
	const mutex = Mutex.init(buffer, 64, { fair: true }), channel = Channel.init(buffer, 512, 4, 2);
	await mutex.lock();
	const [a, b] = [await next(), await next()];
	a.run(async () => {
		const mutex = new memwait.Mutex(buffer, 64), channel = new memwait.Channel(buffer, 512);
		await mutex.lock();
		i32[0] = i32[0] * 10 + 1;
		mutex.unlock();
		for (let i = 0; i < 20; i++)
			await channel.send(Int32Array.of(i));
		send(await memwait.waitAsync(i64, 2, 0n).value);
		// Nothing is pending, so the process exits.
	});
	await until(() => sleepers(64, Mutex.SIZE) === 1);
	const second = mutex.lock();
	b.run(() => {
		const mutex = new memwait.Mutex(buffer, 64);
		mutex.lockSync();
		i32[0] = i32[0] * 10 + 3;
		mutex.unlock();
		send(memwait.wait(i32, 4, 0));
	});
	await until(() => sleepers(64, Mutex.SIZE) === 3);
	mutex.unlock();
	await second;
	view[0] = view[0] * 10 + 2;
	mutex.unlock();
	for (let i = 0; i < 20; i++)
		assert.strictEqual(new Int32Array((await channel.recv()).buffer)[0], i);
	// One queue has an async wait on 64 bits and a blocked thread that waits on 32 bits.
	await until(() => memwait.waiters(view, 4) === 2);
	assert.strictEqual(notify(view, 4), 2);
	assert.strictEqual(await a.next(), 'ok');
	assert.strictEqual(await b.next(), 'ok');
	assert.strictEqual(view[0], 123);
	assert.strictEqual(await a.ended, 0);
	assert.strictEqual(await b.ended, 0);
});

test('kill -9 of a process that holds a robust mutex', async () => {
	const repaired = [];
	const mutex = Mutex.init(buffer, 64, { robust: true, repair: () => repaired.push(view[0]) });
	const strict = new Mutex(buffer, 64);
	const victim = (await next()).run(async () => {
		await new memwait.Mutex(buffer, 64).lock();
		i32[0] = 1;
		send('locked');
		memwait.waitAsync(i32, 9, 0);
	});
	assert.strictEqual(await victim.next(), 'locked');
	const first = mutex.lock(), second = mutex.lock();
	victim.kill();
	assert.strictEqual(await victim.ended, 'SIGKILL');
	await first;
	assert.deepStrictEqual(repaired, [1]);
	mutex.unlock();
	await second;
	assert.deepStrictEqual(repaired, [1]);
	mutex.unlock();
	mutex.destroy();
	// Without a repair function the mutex becomes unusable.
	Mutex.init(buffer, 64, { robust: true });
	const another = (await next()).run(() => {
		new memwait.Mutex(buffer, 64).lockSync();
		send('locked');
		memwait.wait(i32, 9, 0);
	});
	assert.strictEqual(await another.next(), 'locked');
	const blocked = strict.lock();
	another.kill();
	await assert.rejects(blocked, { code: 'EOWNERDEAD' });
	await assert.rejects(strict.lock(), { code: 'ENOTRECOVERABLE' });
	assert.throws(() => strict.lockSync(), { code: 'ENOTRECOVERABLE' });
});

test('kill -9 of a waiter: the next waiter is woken', async () => {
	const semaphore = Semaphore.init(buffer, 64);
	const victim = (await next()).run(async () => {
		new memwait.Semaphore(buffer, 64).acquire();
		memwait.waitAsync(i32, 0, 0);
		send('begun');
	});
	assert.strictEqual(await victim.next(), 'begun');
	const second = waitAsync(view, 0, 0), acquired = semaphore.acquire();
	victim.kill();
	await victim.ended;
	assert.strictEqual(notify(view, 0, 1), 1);
	assert.strictEqual(await second.value, 'ok');
	semaphore.release();
	await acquired;
});

test('process.exit(), and an exception: other results are passed on', async () => {
	for (const [last, status] of [['process.exit(7)', 7], ["{ require('fs').closeSync(2); throw undefined; }", 1]]) {
		const run = async () => (await next()).run(`() => (${wants})(() => ${last})`);
		await takesOne(run, async (process) => assert.strictEqual(await process.ended, status));
	}
});

test('only pending promises keep a process alive', () => {
	const source = `
		const memwait = require(${JSON.stringify(place)});
		const view = new Int32Array(memwait.map(memwait.memfd(4096), 4096));
		memwait.notify(view, 0);
		// The loop alone does not keep the process alive, and neither do cancelled and
		// settled promises.
		const controller = new AbortController();
		const mutex = memwait.Mutex.init(view.buffer, 64);
		mutex.lockSync();
		mutex.lock({ signal: controller.signal }).catch(() => {});
		controller.abort();
		memwait.waitAsync(view, 0, 0, 50).value.then((result) => {
			console.log(result);
			const { value } = memwait.waitAsync(view, 0, 0);
			setTimeout(() => memwait.notify(view, 0), 10).unref();
			setInterval(() => {}, 1000).unref();
			value.then((result) => console.log(result));
		});`;
	const { stdout, stderr, status } = spawnSync(process.execPath, ['-e', source],
						     { encoding: 'utf8', timeout: limit(240000) });
	assert.strictEqual(stderr, '');
	assert.strictEqual(stdout, 'timed-out\nok\n');
	assert.strictEqual(status, 0);
});
