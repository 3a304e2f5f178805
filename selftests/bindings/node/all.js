// SPDX-License-Identifier: GPL-2.0-only
'use strict';
const { runTests, skip, test } = require('./harness');

for (const part of ['words', 'objects', 'workers', 'scripts', 'processes', 'examples'])
	require(`./${part}`);
// ./bench is loaded last, because it creates objects when it is loaded, and a test needs a process
// that has not created any object.
test('the contenders of the benchmark count right', () => require('./bench')(0));
// These tests take minutes.
skip('ECMAScript\'s own tests', 'TEST262=CHECKOUT node test262.js runs them');
runTests();
