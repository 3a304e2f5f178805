// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
// The Node.js program, which uses promises: fourth.js FILE
const assert = require('assert');
const { setTimeout } = require('timers/promises');
const { map, Mutex, Channel } = require('memwait');

const [MUTEX, HOLDER, TURNS, LOG, CHANNEL, SIZE] = [0, 128, 132, 256, 1024, 4096];
const [ITEM, ROUNDS, HOLD_MS] = [8, 10, 2];
const LETTER = 'N'.charCodeAt(0);

const memory = map(process.argv[2], SIZE);
const bytes = new Uint8Array(memory);
const turns = new Uint32Array(memory, TURNS, 1);

async function takeTurns() {
	const mutex = new Mutex(memory, MUTEX);
	const channel = new Channel(memory, CHANNEL);
	const name = new Uint8Array(ITEM);
	new TextEncoder().encodeInto('Node', name);

	await channel.send(name);
	for (let i = 0; i < ROUNDS; i++)
		await mutex.withLock(async () => {
			assert.strictEqual(bytes[HOLDER], 0);
			bytes[HOLDER] = LETTER;
			bytes[LOG + turns[0]++] = LETTER;
			await setTimeout(HOLD_MS);
			assert.strictEqual(bytes[HOLDER], LETTER);
			bytes[HOLDER] = 0;
		});
	await channel.send(name);
}

takeTurns();
