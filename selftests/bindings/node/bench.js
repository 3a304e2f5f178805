// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// What the package's calls cost, in ns: node bench.js [ROUNDS]. The best of five; the engine's own beside it.
const memwait = require(process.env.MEMWAIT_NODE || 'memwait');
const rounds = Number(process.argv[2] ?? 20000);

const buffer = memwait.map(memwait.memfd(4096), 4096);
const view = new Int32Array(buffer, 0, 8), own = new Int32Array(new SharedArrayBuffer(64));
const mutex = memwait.Mutex.init(buffer, 64);

async function measure(name, run)
{
	let best = Infinity;
	for (let i = 0; i < 5; i++) {
		const start = process.hrtime.bigint();
		await run(rounds);
		best = Math.min(best, Number(process.hrtime.bigint() - start) / rounds);
	}
	console.log(`${name}: ${best.toFixed(0)} ns`);
}

async function wakeUps(atomics, view, n)
{
	for (let i = 0; i < n; i++) {
		const { value } = atomics.waitAsync(view, 0, 0);
		atomics.notify(view, 0);
		await value;
	}
}

async function main()
{
	await measure('an awaited setImmediate()', async (n) => {
		for (let i = 0; i < n; i++)
			await new Promise((resolve) => setImmediate(resolve));
	});
	await measure('tryLock(), unlock()', (n) => {
		for (let i = 0; i < n; i++) {
			mutex.tryLock();
			mutex.unlock();
		}
	});
	await measure('lockSync(), unlock()', (n) => {
		for (let i = 0; i < n; i++) {
			mutex.lockSync();
			mutex.unlock();
		}
	});
	await measure('await lock(), unlock()', async (n) => {
		for (let i = 0; i < n; i++) {
			await mutex.lock();
			mutex.unlock();
		}
	});
	await measure('wait() that is not equal', (n) => {
		for (let i = 0; i < n; i++)
			memwait.wait(view, 0, 1);
	});
	await measure('notify() of nobody', (n) => {
		for (let i = 0; i < n; i++)
			memwait.notify(view, 0);
	});
	await measure('waitAsync(), notify(), await', (n) => wakeUps(memwait.Atomics, view, n));
	await measure('the engine\'s', (n) => wakeUps(Atomics, own, n));
}

main();
