// SPDX-License-Identifier: GPL-2.0-only
'use strict';
const { runTests, skip, test } = require('./harness');
const bench = require('./bench');

for (const part of ['words', 'objects', 'workers', 'processes', 'examples'])
	require(`./${part}`);
test('contenders of the bench count right', () => bench(0));
// They take minutes.
skip('ECMAScript\'s own tests', 'TEST262=CHECKOUT node test262.js runs them');
runTests();
