// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// What child() starts: one message says what to run. It does not keep the process alive.
process.once('message', (source) => {
	const send = (message) => process.send(message);
	process.channel.unref();
	new Function('require', 'process', 'send', process.env.MEMWAIT_PRELUDE + source)(require, process, send);
});
process.on('disconnect', () => process.exit(1));
