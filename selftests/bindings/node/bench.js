// SPDX-License-Identifier: GPL-2.0-only
'use strict';
/*
 * Measures lock and unlock, and an awaited wake-up, in JavaScript: see selftests/bench/bindings.
 * run(0) only checks that each contender counts correctly.
 */
const memwait = require(process.env.MEMWAIT_NODE || 'memwait');

const buffer = memwait.map(memwait.memfd(4096), 4096);
const view = new Int32Array(buffer, 64, 1), own = new Int32Array(new SharedArrayBuffer(4));
const mutex = memwait.Mutex.init(buffer, 0);

function lockSync(times)
{
	let count = 0;
	for (let i = 0; i < times; i++) {
		mutex.lockSync();
		count++;
		mutex.unlock();
	}
	return count;
}

async function lock(times)
{
	let count = 0;
	for (let i = 0; i < times; i++) {
		await mutex.lock();
		count++;
		mutex.unlock();
	}
	return count;
}

async function wake(atomics, view, times)
{
	let count = 0;
	for (let i = 0; i < times; i++) {
		const { value } = atomics.waitAsync(view, 0, 0);
		atomics.notify(view, 0, 1);
		count += await value === 'ok';
	}
	return count;
}

async function work(name, rounds, times, contenders)
{
	console.log(`#  RUN           bench.${name}`);
	const figures = contenders.map(() => []);
	// The first round warms up.
	for (let round = 0; round <= rounds; round++) {
		for (const [i, [contender, run]] of contenders.entries()) {
			const start = process.hrtime.bigint();
			const count = await run(times);
			figures[i].push(Number(process.hrtime.bigint() - start) / times);
			if (count !== times)
				throw new Error(`${name}: ${contender} has counted ${count} of ${times}`);
		}
	}
	for (const [i, [contender]] of contenders.entries()) {
		if (rounds)
			console.log(['# bench', contender, 'ns',
				     ...figures[i].slice(1).map((ns) => ns.toPrecision(4))].join('\t'));
	}
}

async function run(rounds)
{
	await work('binding_lock', rounds, rounds ? 20000 : 100, [
		['Node', lockSync],
		['Node await', lock],
	]);
	await work('binding_wake', rounds, rounds ? 5000 : 50, [
		['V8', (times) => wake(Atomics, own, times)],
		['Node await', (times) => wake(memwait.Atomics, view, times)],
	]);
}

module.exports = run;
if (require.main === module)
	run(Number(process.env.MEMWAIT_BENCH_ROUNDS ?? 0));
