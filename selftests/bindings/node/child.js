// SPDX-License-Identifier: GPL-2.0-only
'use strict';
// The program that child() starts. It runs the code of one message. The IPC channel does not keep
// the process alive.
process.once('message', (source) => {
	const send = (message) => process.send(message);
	process.channel.unref();
	new Function('require', 'process', 'send', process.env.MEMWAIT_PRELUDE + source)(require, process, send);
});
process.on('disconnect', () => process.exit(1));
