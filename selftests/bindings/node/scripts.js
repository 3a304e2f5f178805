// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// Blocking scripts that the timeout of vm stops. The thread of the script continues.
const { assert, buffer, memwait, sleepers, test, until, worker } = require('./harness');
const { Mutex, Condition, Semaphore, Channel, wait, waiters } = memwait;
const vm = require('vm');

const view = new Int32Array(buffer);

// Runs a function until vm's timeout stops it.
function stop(run)
{
	globalThis.stopped = run;
	try {
		assert.throws(() => vm.runInThisContext('stopped()', { timeout: 20 }),
			      { code: 'ERR_SCRIPT_EXECUTION_TIMEOUT' });
	} finally {
		delete globalThis.stopped;
	}
}

test('a script is stopped: nothing is consumed', () => {
	const mutex = Mutex.init(buffer, 64, { fair: true });
	const semaphore = Semaphore.init(buffer, 128);
	const channel = Channel.init(buffer, 512, 4, 1);
	mutex.lockSync();
	stop(() => wait(view, 0, 0));
	stop(() => mutex.lockSync());
	stop(() => semaphore.acquireSync());
	stop(() => channel.recvSync());
	assert.strictEqual(waiters(view, 0), 0);
	mutex.unlock();
	mutex.lockSync();
	mutex.unlock();
	semaphore.release();
	assert.strictEqual(semaphore.tryAcquire(), true);
	assert.strictEqual(channel.trySend(new Uint8Array(4)), true);
	assert.strictEqual(channel.length, 1);
	assert.strictEqual(wait(view, 0, 0, 1), 'timed-out');
	mutex.destroy();
});

test('a script is stopped: the mutex of a condition is locked again', () => {
	for (const kind of [{}, { fair: true }, { robust: true }, { errorcheck: true }]) {
		const mutex = Mutex.init(buffer, 64, kind), condition = Condition.init(buffer, 128);
		mutex.lockSync();
		stop(() => condition.waitSync(mutex));
		assert.throws(() => mutex.destroy(), { code: 'EBUSY' });
		// The script is stopped at an arbitrary moment in a loop of waits.
		stop(() => {
			for (;;)
				condition.waitSync(mutex, { timeout: 5 });
		});
		assert.throws(() => mutex.destroy(), { code: 'EBUSY' });
		mutex.unlock();
		assert.strictEqual(mutex.tryLock(), true);
		mutex.unlock();
		condition.destroy();
		mutex.destroy();
	}
});

// Starts another thread. The other thread waits for the mutex at 64, which this thread holds, and
// acquires the mutex when this thread waits for the condition at 128. When this thread's wait has
// been stopped, the other thread calls @then with the mutex held.
async function other(then)
{
	const thread = worker(`() => {
		const mutex = new memwait.Mutex(buffer, 64);
		const isAwaited = () => Array.from({ length: ${Condition.SIZE / 4} })
			.some((_, i) => memwait.waiters(i32, ${128 / 4} + i) > 0);
		mutex.lockSync();
		while (isAwaited())
			;
		(${then})(mutex);
	}`);
	await until(() => sleepers(64, Mutex.SIZE) > 0);
	return thread;
}

test('a script is stopped: another thread holds the mutex of a condition', async () => {
	// A fair mutex is handed over when the wait begins. If the wait is stopped earlier, the
	// wait reacquires the mutex.
	const mutex = Mutex.init(buffer, 64, { errorcheck: true, fair: true });
	const condition = Condition.init(buffer, 128);
	mutex.lockSync();
	view[0] = 0;
	const thread = await other((mutex) => {
		i32[0] = 1;
		mutex.unlock();
	});
	do
		stop(() => condition.waitSync(mutex));
	while (view[0] !== 1);
	mutex.unlock();
	assert.strictEqual(await thread.ended, 0);
});

test('a script is stopped: another thread dies while it holds the mutex of a condition', async () => {
	let repairs = 0;
	const mutex = Mutex.init(buffer, 64, { robust: true, repair: () => repairs++ });
	const condition = Condition.init(buffer, 128);
	mutex.lockSync();
	const thread = await other(() => {
		i32[0] = 1;
	});
	view[0] = 0;
	// A wait that is stopped before the other thread has the mutex reacquires the mutex.
	do
		stop(() => condition.waitSync(mutex));
	while (view[0] !== 1);
	// The stopped wait does not hold the mutex. The next owner repairs the data.
	assert.strictEqual(repairs, 0);
	assert.throws(() => mutex.unlock(), { code: 'EPERM' });
	assert.strictEqual(mutex.tryLock(), true);
	assert.strictEqual(repairs, 1);
	mutex.unlock();
	assert.strictEqual(await thread.ended, 0);
});

test('terminate: a stopped script that waits for the mutex of a condition', async () => {
	// A fair mutex is handed over when the wait begins. If the wait is stopped earlier, the
	// wait reacquires the mutex.
	const mutex = Mutex.init(buffer, 64, { errorcheck: true, fair: true });
	const condition = Condition.init(buffer, 128);
	const thread = worker(() => {
		globalThis.stopped = () => new memwait.Condition(buffer, 128).waitSync(mutex);
		const mutex = new memwait.Mutex(buffer, 64);
		mutex.lockSync();
		send('locked');
		const bytes = new Uint8Array(buffer);
		while (Array.from({ length: 32 }, (_, i) => memwait.waiters(bytes, 64 + i)).every((n) => n === 0))
			;
		for (;;) {
			try {
				require('vm').runInThisContext('stopped()', { timeout: 20 });
			} catch (error) {
				if (error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT')
					continue;
			}
			send('the wait returned');
			break;
		}
	});
	assert.strictEqual(await thread.next(), 'locked');
	const went = thread.next().then((message) => assert.fail(message));
	await mutex.lock();
	await Promise.race([until(() => sleepers(64, Mutex.SIZE) > 0), went]);
	assert.strictEqual(sleepers(128, Condition.SIZE), 0);
	assert.strictEqual(await thread.terminate(), 1);
	assert.strictEqual(sleepers(64, Mutex.SIZE), 0);
	mutex.unlock();
	mutex.destroy();
	condition.destroy();
});

test('a wait at the end of the stack', () => {
	const mutex = Mutex.init(buffer, 64, { errorcheck: true });
	const condition = Condition.init(buffer, 128);
	let result;
	const deep = () => {
		try {
			deep();
		} catch (error) {
			if (!(error instanceof RangeError))
				throw error;
			result = condition.waitSync(mutex, { timeout: 60 });
		}
	};
	mutex.lockSync();
	deep();
	assert.strictEqual(result, false);
	mutex.unlock();
});
