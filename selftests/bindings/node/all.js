// SPDX-License-Identifier: GPL-2.0-only
'use strict';
const { runTests, skip } = require('./harness');

for (const part of ['words', 'objects', 'workers', 'processes', 'examples'])
	require(`./${part}`);
// They take minutes.
skip('ECMAScript\'s own tests', 'TEST262=CHECKOUT node test262.js runs them');
runTests();
