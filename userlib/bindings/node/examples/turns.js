// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
'use strict';
// Two processes take turns: a word says whose turn it is, and each process waits for its turn.
const { fork } = require('child_process');
const fs = require('fs');
const { map, Atomics } = require('memwait');

const file = process.argv[2] ?? `/dev/shm/memwait-turns-${process.pid}`;
const me = process.argv[2] ? 1 : 0;
const turn = new Int32Array(map(file, 4096), 0, 1);

async function play()
{
	for (let i = 0; i < 3; i++) {
		// "not-equal" if it is already our turn. The event loop runs other callbacks while this waits.
		while (Atomics.load(turn, 0) !== me)
			await Atomics.waitAsync(turn, 0, 1 - me).value;
		console.log(me ? 'pong' : 'ping');
		Atomics.store(turn, 0, 1 - me);
		Atomics.notify(turn, 0);
	}
}

if (me === 0)
	fork(__filename, [file]).on('exit', () => fs.rmSync(file));
play();
