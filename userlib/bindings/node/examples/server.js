// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
'use strict';
// A server whose clients wait for the next version of data that another process publishes. No request blocks
// another request, and none polls.
const { fork } = require('child_process');
const fs = require('fs');
const http = require('http');
const { map, Atomics } = require('memwait');

const file = process.argv[2] ?? `/dev/shm/memwait-server-${process.pid}`;
const version = new Int32Array(map(file, 4096), 0, 1);

function publish()
{
	Atomics.add(version, 0, 1);
	Atomics.notify(version, 0);
}

async function serve(request, response)
{
	const have = Number(request.url.slice(1));
	// The expected value is the version that the client has. It may already be out of date.
	const result = await Atomics.waitAsync(version, 0, have, 120000).value;
	response.end(result === 'timed-out' ? 'nothing new\n' : `version ${Atomics.load(version, 0)}\n`);
}

// Sends a request, and prints the answer.
function get(have)
{
	return new Promise((resolve, reject) => {
		http.get({ socketPath: `${file}.socket`, path: `/${have}` }, (response) => {
			response.setEncoding('utf8').on('data', (text) => process.stdout.write(text));
			response.on('end', resolve);
		}).on('error', reject);
	});
}

if (process.argv[2]) {
	publish();
} else {
	const server = http.createServer(serve).listen(`${file}.socket`, async () => {
		const clients = [get(0), get(0)];
		fork(__filename, [file]);
		await Promise.all(clients);
		await get(0);
		server.close();
		fs.rmSync(file);
	});
}
