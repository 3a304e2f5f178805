// SPDX-License-Identifier: GPL-2.0-only
'use strict';
/*
 * test(name, function) adds a test. Tests run in the order of these calls, for at most five minutes
 * each. worker() and child() run the text of a function in a thread or a process. The function can
 * use memwait, the shared buffer, and send(); next() returns the messages that were sent. A test
 * should start children early, because starting a child takes a long time.
 */
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const { fork } = require('child_process');
const { Worker } = require('worker_threads');

const place = require.resolve(process.env.MEMWAIT_NODE || 'memwait');
const memwait = require(place);
const SIZE = 65536;
const file = path.join(fs.existsSync('/dev/shm') ? '/dev/shm' : '/tmp', `memwait-node-${process.pid}`);
const buffer = memwait.map(file, SIZE);
const processes = new Set();
process.on('exit', () => {
	fs.rmSync(file, { force: true });
	processes.forEach((child) => child.kill('SIGKILL'));
});

const tests = [];

// The time limit that ends a hang: ms on an idle machine, times the measured slowness (see measure_slowness() in
// selftests/vm/init)
function limit(ms)
{
	return ms * (process.env.MEMWAIT_SLOWNESS || 1);
}

function test(name, run)
{
	tests.push({ name, run });
}

function skip(name, reason)
{
	tests.push({ name: `${name} # SKIP ${reason}` });
}

// Resolves when is() is true. The pauses become longer, so that a thread that starts gets CPU time.
async function until(is)
{
	for (let pause = 1; !is(); pause = Math.min(2 * pause, 64))
		await new Promise((resolve) => setTimeout(resolve, pause));
}

async function runTests()
{
	console.log('TAP version 13');
	console.log(`1..${tests.length}`);
	let bad = 0;
	for (const [i, { name, run }] of tests.entries()) {
		if (!run) {
			console.log(`ok ${i + 1} ${name}`);
			continue;
		}
		let timer;
		const late = new Promise((resolve, reject) => {
			timer = setTimeout(() => reject(new Error('five minutes have passed')),
				limit(300000));
		});
		const start = process.hrtime.bigint();
		try {
			new Uint8Array(buffer).fill(0);
			await Promise.race([run(), late]);
			const ms = (process.hrtime.bigint() - start) / 1000000n;
			console.log(`ok ${i + 1} ${name} # ${ms} ms`);
		} catch (error) {
			bad++;
			console.log(`not ok ${i + 1} ${name}`);
			console.log(String(error.stack).replace(/^/gm, '# '));
		}
		clearTimeout(timer);
	}
	process.exit(bad ? 1 : 0);
}

// A queue of messages.
class Peer {
	#messages = [];
	#wanted = [];

	got(message) {
		if (this.#wanted.length)
			this.#wanted.shift()(message);
		else
			this.#messages.push(message);
	}

	next() {
		if (this.#messages.length)
			return Promise.resolve(this.#messages.shift());
		return new Promise((resolve) => this.#wanted.push(resolve));
	}
}

const prelude = `
const memwait = require(${JSON.stringify(place)});
const buffer = memwait.map(${JSON.stringify(file)}, ${SIZE});
const i32 = new Int32Array(buffer), i64 = new BigInt64Array(buffer);
`;

// @shared: a SharedArrayBuffer instead of the file.
function worker(run, shared)
{
	const peer = new Peer();
	const source = `
		const { parentPort, workerData } = require('worker_threads');
		const send = (message) => parentPort.postMessage(message);
		${shared ? prelude.replace(/const buffer.*;/, 'const buffer = workerData;') : prelude}
		(${run})();`;
	const thread = new Worker(source, { eval: true, workerData: shared });
	thread.on('message', (message) => peer.got(message));
	thread.on('error', (error) => peer.got(error));
	const ended = new Promise((resolve) => thread.on('exit', resolve));
	return { next: () => peer.next(), terminate: () => thread.terminate(), ended, thread };
}

// Starts a process, which waits for one call of run().
function child()
{
	const peer = new Peer();
	const started = fork(path.join(__dirname, 'child.js'), [],
			     { env: { ...process.env, MEMWAIT_PRELUDE: prelude } });
	processes.add(started);
	started.on('message', (message) => peer.got(message));
	const ended = new Promise((resolve) => {
		started.on('exit', (code, signal) => resolve(signal ?? code));
	});
	return {
		run(source) {
			started.send(`(${source})();`);
			return this;
		},
		next: () => peer.next(),
		kill: () => started.kill('SIGKILL'),
		ended,
	};
}

// Counts the waiters of an object. Waiters of a fair lock wait on a byte, so the function checks
// each byte.
function sleepers(byteOffset, size)
{
	const bytes = new Uint8Array(buffer);
	let all = 0;
	for (let i = byteOffset; i < byteOffset + size; i++)
		all += memwait.waiters(bytes, i);
	return all;
}

// The code for takesOne(). One dispatch settles all its promises. The first promise, which gets an
// item, calls @last.
const wants = `(last) => {
	const channel = new memwait.Channel(buffer, 512), mutex = new memwait.Mutex(buffer, 64);
	const semaphore = new memwait.Semaphore(buffer, 128);
	for (const promise of [channel.recv(), channel.recv(), mutex.lock(), semaphore.acquire()])
		promise.then(last);
	// Block the event loop until all results have arrived.
	memwait.wait(i32, 0, 0);
}`;

/*
 * @begin starts a thread or process that runs wants, and returns it. @end waits until this thread
 * or process has ended. Only the first promise consumes an item, because its callback ends the
 * thread or process. The results of the other promises go to other waiters.
 */
async function takesOne(begin, end)
{
	const { Mutex, Semaphore, Channel } = memwait;
	const mutex = Mutex.init(buffer, 64, { fair: true }), semaphore = Semaphore.init(buffer, 128);
	const channel = Channel.init(buffer, 512, 4, 2);
	mutex.lockSync();
	const one = await begin();
	const view = new Int32Array(buffer);
	await until(() => memwait.waiters(view, 0) === 1);
	for (const n of [1, 2])
		assert.strictEqual(channel.trySend(Uint8Array.of(n, 0, 0, 0)), true);
	mutex.unlock();
	semaphore.release();
	assert.strictEqual(memwait.notify(view, 0), 1);
	await end(one);
	assert.deepStrictEqual(channel.tryRecv(), Uint8Array.of(2, 0, 0, 0));
	assert.strictEqual(channel.tryRecv(), undefined);
	assert.strictEqual(mutex.tryLock(), true);
	assert.strictEqual(semaphore.tryAcquire(), true);
	mutex.unlock();
	for (const object of [mutex, semaphore, channel])
		object.destroy();
}

module.exports = { assert, buffer, child, file, limit, memwait, place, runTests, skip, sleepers, takesOne, test, until,
		   wants, worker };
