// SPDX-License-Identifier: GPL-2.0-only
'use strict';
/*
 * Runs ECMAScript's own tests of Atomics.wait, waitAsync and notify whose names contain TEXT:
 * TEST262=CHECKOUT node test262.js [TEXT].
 *
 * Runs the tests three times: with the engine's functions; with the package's functions and agents
 * that are worker threads; and with the package's functions, agents that are processes, and a memfd
 * instead of a SharedArrayBuffer. In each case a host process runs the tests, and is replaced if a
 * test hangs. The next test reuses the agents, because starting an agent takes a long time.
 */
const fs = require('fs');
const path = require('path');
const { fork } = require('child_process');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const checkout = process.env.TEST262;
const memwait = checkout && require(process.env.MEMWAIT_NODE || 'memwait');
const ways = (process.env.TEST262_WAYS ?? 'engine,threads,processes').split(',');
const folders = ['wait', 'waitAsync', 'notify'];
// In ms: the time limit of a test, and that of its agents after the end of the test.
const TEST_TIME = Number(process.env.TEST262_TIME ?? 120000), AFTER = 5000;
// Tests give an agent 100 ms to fall asleep. A slow machine may need longer, so a failed test is
// repeated.
const ATTEMPTS = 3;

const tick = new Int32Array(new SharedArrayBuffer(4));

function sleep(ms)
{
	Atomics.wait(tick, 0, 0, ms);
}

// Memory that a host shares with its agents, in addition to the memory of the test: counters, and a queue of reports
class Control {
	#words;
	#bytes;
	static LOCK = 0;
	static WRITTEN = 1;
	static READ = 2;
	static RETRIEVED = 3;
	static LEFT = 4;
	static #SLOTS = 64;
	static #SLOT_SIZE = 512;
	static SIZE = 1024 + Control.#SLOTS * Control.#SLOT_SIZE;

	constructor(file) {
		const memory = memwait.map(file, Control.SIZE);
		this.#words = new Int32Array(memory, 0, 16);
		this.#bytes = Buffer.from(memory, 1024);
	}

	reset() {
		this.#words.fill(0);
	}

	get(word) {
		return Atomics.load(this.#words, word);
	}

	add(word) {
		Atomics.add(this.#words, word, 1);
	}

	report(value) {
		const text = Buffer.from(String(value));
		while (Atomics.compareExchange(this.#words, Control.LOCK, 0, 1))
			;
		const slot = (this.get(Control.WRITTEN) % Control.#SLOTS) * Control.#SLOT_SIZE;
		this.#bytes.writeInt32LE(text.length, slot);
		text.copy(this.#bytes, slot + 4);
		this.add(Control.WRITTEN);
		Atomics.store(this.#words, Control.LOCK, 0);
	}

	getReport() {
		const read = this.get(Control.READ);
		if (read === this.get(Control.WRITTEN))
			return null;
		const slot = (read % Control.#SLOTS) * Control.#SLOT_SIZE + 4;
		const text = this.#bytes.toString('utf8', slot, slot + this.#bytes.readInt32LE(slot - 4));
		this.add(Control.READ);
		return text;
	}
}

// The names of the buffers of a host whose agents are processes. Each buffer is a memfd, which
// agents open by its name.
const names = new WeakMap();

function MappedBuffer(length, options)
{
	// A mapping cannot be empty, and cannot grow.
	if (!(length > 0) || options !== undefined)
		return new SharedArrayBuffer(length, options);
	const fd = memwait.memfd(length);
	const buffer = memwait.map(fd, length);
	names.set(buffer, { file: `/proc/${process.pid}/fd/${fd}`, length });
	return buffer;
}
MappedBuffer.prototype = SharedArrayBuffer.prototype;

function atomicsOf(way)
{
	const own = way === 'engine' ? Atomics : memwait.Atomics;
	// A copy, because a test may delete the functions that it tests.
	return Object.create(Object.prototype, Object.getOwnPropertyDescriptors(own));
}

function call(source, names)
{
	const keys = Object.keys(names);
	return new Function(...keys, source).apply(globalThis, keys.map((key) => names[key]));
}

const monotonicNow = () => performance.now();

function agent(way, file, onMessage)
{
	const control = new Control(file);
	let receive, message;

	function deliver() {
		if (!receive || !message)
			return;
		const { memory } = message;
		const callback = receive;
		receive = message = undefined;
		control.add(Control.RETRIEVED);
		callback(memory.file ? memwait.map(memory.file, memory.length) : memory);
	}

	onMessage((received) => {
		if (received.memory) {
			message = received;
			deliver();
			return;
		}
		receive = message = undefined;
		let left = false;
		const $262 = { agent: {
			receiveBroadcast(callback) {
				receive = callback;
				setImmediate(deliver);
			},
			report: (value) => control.report(value),
			leaving() {
				if (!left)
					control.add(Control.LEFT);
				left = true;
			},
			sleep, monotonicNow,
		} };
		call(received.source, { $262, Atomics: atomicsOf(way), setTimeout });
	});
}

function startAgent(way, file)
{
	if (way === 'processes') {
		const child = fork(__filename, ['agent', way, file], { stdio: 'inherit' });
		return { post: (message) => child.send(message), stop: () => child.kill('SIGKILL') };
	}
	const worker = new Worker(__filename, { workerData: { way, file } });
	worker.on('error', () => undefined);
	return { post: (message) => worker.postMessage(message), stop: () => worker.terminate() };
}

function host(way, file)
{
	const control = new Control(file);
	let pool = [], started = [];

	const agentApi = {
		start(source) {
			const agent = pool.pop() ?? startAgent(way, file);
			started.push(agent);
			agent.post({ source });
		},
		broadcast(buffer) {
			const before = control.get(Control.RETRIEVED);
			const memory = names.get(buffer) ?? buffer;
			for (const agent of started)
				agent.post({ memory });
			while (control.get(Control.RETRIEVED) < before + started.length)
				sleep(1);
		},
		getReport: () => control.getReport(),
		sleep, monotonicNow,
	};

	function end() {
		const late = Date.now() + AFTER;
		while (control.get(Control.LEFT) < started.length && Date.now() < late)
			sleep(1);
		// An agent that has not called leaving() cannot be reused.
		if (control.get(Control.LEFT) < started.length)
			started.forEach((agent) => agent.stop());
		else
			pool = pool.concat(started);
		started = [];
	}

	process.on('message', ({ source, isAsync }) => {
		control.reset();
		const detachArrayBuffer = (buffer) => eval('%ArrayBufferDetach(buffer)');
		const $262 = { agent: { ...agentApi }, detachArrayBuffer };
		let over = false;
		const done = (error) => {
			if (over)
				return;
			over = true;
			const text = error && String(error.stack ?? error.message ?? error);
			end();
			process.send({ error: text });
		};
		globalThis.$DONE = done;
		try {
			call(source, { $262, Atomics: atomicsOf(way), setTimeout, print: () => {},
				       SharedArrayBuffer: way === 'processes' ? MappedBuffer : SharedArrayBuffer });
			if (!isAsync)
				done();
		} catch (error) {
			done(error);
		}
	});
}

// Returns the source of a test, and the metadata in the comment that begins with three dashes.
function readTest(file)
{
	const source = fs.readFileSync(file, 'utf8');
	const meta = /\/\*---(.*?)---\*\//s.exec(source)[1];
	const list = (key) => {
		const found = new RegExp(`^${key}:\\s*\\[(.*?)\\]`, 'ms').exec(meta);
		return found ? found[1].split(',').map((s) => s.trim()).filter(Boolean) : [];
	};
	return { source, flags: list('flags'), includes: list('includes'), features: list('features') };
}

const absent = {
	'immutable-arraybuffer': !('sliceToImmutable' in ArrayBuffer.prototype),
	'resizable-arraybuffer': !('resize' in ArrayBuffer.prototype),
};

function whySkip({ flags, features })
{
	if (flags.includes('CanBlockIsFalse'))
		return 'a thread of Node may block';
	return features.filter((feature) => absent[feature]).map((feature) => `the engine has no ${feature}`)[0];
}

async function runWay(way, tests)
{
	const file = `/dev/shm/memwait-test262-${process.pid}-${way}`;
	const passed = [0, 0];
	const skipped = [], failed = [];
	let started;

	for (const name of tests) {
		const test = readTest(path.join(checkout, 'test/built-ins/Atomics', name));
		const skip = whySkip(test);
		if (skip) {
			skipped.push(`${name}: ${skip}`);
			continue;
		}
		const isAsync = test.flags.includes('async');
		const includes = ['assert.js', 'sta.js', ...test.includes]
			.map((name) => fs.readFileSync(path.join(checkout, 'harness', name), 'utf8'));
		const source = (test.flags.includes('onlyStrict') ? '"use strict";\n' : '') +
			[...includes, test.source].join('\n');
		const attempt = async () => {
			started ??= fork(__filename, ['host', way, file], { execArgv: ['--allow-natives-syntax'] });
			const error = await new Promise((resolve) => {
				const timer = setTimeout(() => resolve('hangs'), TEST_TIME);
				const end = (error) => {
					clearTimeout(timer);
					started.removeAllListeners();
					resolve(error);
				};
				started.on('message', (message) => end(message.error));
				started.on('exit', (code, signal) => end(`exit ${signal ?? code}`));
				started.send({ source, isAsync });
			});
			if (error === 'hangs' || error?.startsWith('exit')) {
				started.kill('SIGKILL');
				started = undefined;
			}
			return error;
		};
		let error = await attempt();
		for (let i = 1; error && i < ATTEMPTS; i++)
			error = await attempt();
		if (error)
			failed.push(`${name}: ${error}`);
		else
			passed[test.source.includes('agent.start') ? 1 : 0]++;
	}
	started?.kill('SIGKILL');
	fs.rmSync(file, { force: true });
	for (const line of [...skipped.map((s) => `skipped ${s}`), ...failed.map((s) => `failed ${s}`)])
		console.log(line.replace(/^/gm, '# '));
	console.log(`# ${way}: ${passed[0] + passed[1]} passed, of them ${passed[1]} with agents, ` +
		    `${failed.length} failed, ${skipped.length} skipped`);
	return { passed: passed[0] + passed[1], failed };
}

async function main(text)
{
	if (!checkout) {
		console.log('1..0 # SKIP no TEST262, a checkout of tc39/test262');
		process.exitCode = 4;
		return;
	}
	const root = path.join(checkout, 'test/built-ins/Atomics');
	const tests = folders.flatMap((folder) => {
		return ['', 'bigint'].flatMap((sub) => {
			return fs.readdirSync(path.join(root, folder, sub)).filter((name) => name.endsWith('.js'))
				.map((name) => path.join(folder, sub, name));
		});
	}).filter((name) => name.includes(text));
	const results = {};
	console.log(`TAP version 13\n1..${ways.length}`);
	for (const [i, way] of ways.entries()) {
		results[way] = await runWay(way, tests);
		// Ignore tests that also fail with the engine's own functions.
		const own = new Set(results.engine?.failed.map((line) => line.split(':')[0]));
		const bad = results[way].failed.filter((line) => !own.has(line.split(':')[0]));
		console.log(`${bad.length || !results[way].passed ? 'not ok' : 'ok'} ${i + 1} test262: ${way}`);
		if (bad.length || !results[way].passed)
			process.exitCode = 1;
	}
}

if (!isMainThread)
	agent(workerData.way, workerData.file, (handler) => parentPort.on('message', handler));
else if (process.argv[2] === 'agent')
	agent(process.argv[3], process.argv[4], (handler) => process.on('message', handler));
else if (process.argv[2] === 'host')
	host(process.argv[3], process.argv[4]);
else
	main(process.argv[2] ?? '');
