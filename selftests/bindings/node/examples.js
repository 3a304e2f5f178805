// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// The example in the README prints the output that the README shows, and all examples exit on their
// own.
const { assert, limit, place, test } = require('./harness');
const { spawnSync } = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');

// The folder that contains the examples, in a checkout or in the guest.
const folder = ['../../../userlib/bindings/node', '../userlib/node']
	.map((folder) => path.join(__dirname, folder)).find((folder) => fs.existsSync(folder));

// Files that the examples create to share memory. No such file may be left.
function files()
{
	return fs.readdirSync('/dev/shm').filter((name) => name.startsWith('memwait-'));
}

function run(program)
{
	// Create a link with the package's name, because the folder of the package may have another
	// name.
	const modules = fs.mkdtempSync(path.join(os.tmpdir(), 'modules-'));
	const before = files();
	try {
		fs.symlinkSync(path.dirname(place), path.join(modules, 'memwait'));
		const { stdout, stderr, status } = spawnSync(process.execPath, [program], {
			encoding: 'utf8', timeout: limit(240000), env: { ...process.env, NODE_PATH: modules },
		});
		assert.strictEqual(stderr, '');
		assert.strictEqual(status, 0);
		assert.deepStrictEqual(files(), before);
		return stdout;
	} finally {
		fs.rmSync(modules, { recursive: true });
	}
}

test('the example of the README', () => {
	const readme = fs.readFileSync(path.join(folder, 'README.md'), 'utf8');
	const [, source] = /```js\n(.*?)```/s.exec(readme);
	const [, printed] = /```console\n\$ node readme\.js\n(.*?)```/s.exec(readme);
	const temporary = fs.mkdtempSync(path.join(os.tmpdir(), 'readme-'));
	const program = path.join(temporary, 'readme.js');
	try {
		fs.writeFileSync(program, source);
		assert.strictEqual(run(program), printed);
	} finally {
		fs.rmSync(temporary, { recursive: true });
	}
});

test('two processes take turns', () => {
	assert.strictEqual(run(path.join(folder, 'examples/turns.js')), 'ping\npong\n'.repeat(3));
});

test('the next owner repairs the data of a killed process', () => {
	const printed = 'repair: the owner died\npaid 100, received 100\n';
	assert.strictEqual(run(path.join(folder, 'examples/repair.js')), printed);
});

test('clients of a server wait for another process', () => {
	assert.strictEqual(run(path.join(folder, 'examples/server.js')), 'version 1\n'.repeat(3));
});
