// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
'use strict';
// A process is killed while it holds a robust mutex, and the next owner repairs the data.
const { fork } = require('child_process');
const { rmSync } = require('fs');
const { map, Mutex } = require('memwait');

const file = process.argv[2] ?? `/dev/shm/memwait-repair-${process.pid}`;
const memory = map(file, 4096);
const amounts = new Int32Array(memory, 64, 2);	// paid, received

function repair() {	// called by the next owner, with the mutex locked
	console.log('repair: the owner died');
	amounts[1] = amounts[0];
}

if (process.argv[2]) {
	new Mutex(memory, 0, { repair }).lockSync();
	amounts[0] = 100;
	process.kill(process.pid, 'SIGKILL');	// before it could change what was received
} else {
	const mutex = Mutex.init(memory, 0, { robust: true, repair });

	fork(__filename, [file]).on('exit', async () => {
		await mutex.withLock(() => console.log(`paid ${amounts[0]}, received ${amounts[1]}`));
		rmSync(file);
	});
}
