#!/usr/bin/awk -f
# SPDX-License-Identifier: GPL-2.0-only
# Converts memwait's events in the text of ftrace, which ui.perfetto.dev does not know, into JSON for it:
# trace-cmd report | to-perfetto.awk >trace.json
#
# The wait of a thread becomes a slice that begins waited_ns before its end. An async wait becomes a slice of
# its own, from arming to completion or cancel. All other events become marks on the track of their thread.

# value NAME: the value of a field of the event.
function value(name)
{
	if (!match(fields, " " name "=[^ ]*"))
		return ""
	return substr(fields, RSTART + length(name) + 2, RLENGTH - length(name) - 2)
}

# emit PHASE NAME TIME REST: prints an event on the track of the thread; times are in microseconds.
function emit(phase, name, time, rest)
{
	printf "%s{\"ph\":\"%s\",\"name\":\"%s\",\"cat\":\"memwait\",\"pid\":1,\"tid\":%d,\"ts\":%.3f%s}",
	       comma, phase, name, tid, time, rest
	comma = ",\n"
}

BEGIN {
	print "{\"traceEvents\":["
	printf "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"memwait\"}}"
	comma = ",\n"
}

# command-tid  [processor] flags seconds: event: fields
match($0, /-[0-9]+ +(\([^)]*\) +)?\[[0-9]+\]/) {
	command = substr($0, 1, RSTART - 1)
	sub(/^ +/, "", command)
	gsub(/[\\"]/, "\\\\&", command)
	tid = substr($0, RSTART + 1) + 0
	rest = substr($0, RSTART + RLENGTH)
	if (!match(rest, /[0-9]+\.[0-9]+: memwait_[a-z_]+:/))
		next
	time = substr(rest, RSTART, RLENGTH) * 1e6
	event = substr(rest, RSTART, RLENGTH - 1)
	sub(/.*memwait_/, "", event)
	fields = " " substr(rest, RSTART + RLENGTH)
	gsub(/[\\"]/, "", fields)

	if (named[tid] != command) {
		named[tid] = command
		emit("M", "thread_name", 0, sprintf(",\"args\":{\"name\":\"%s\"}", command))
	}
	word = value("word")
	args = fields
	sub(/^ +/, "", args)
	args = ",\"args\":{\"fields\":\"" args "\"}"
	waited = value("waited_ns") / 1000
	if (event == "wait_end" && waited > 0)
		emit("X", word, time - waited, sprintf(",\"dur\":%.3f%s", waited, args))
	else if (event == "async_arm" || event == "async_complete" || event == "cancel")
		emit(event == "async_arm" ? "b" : "e", word, time,
		     ",\"id\":\"" value("context") ":" value("id") "\"" args)
	else if (event != "wait_begin")
		emit("i", event " " word, time, ",\"s\":\"t\"" args)
}

END {
	print "\n]}"
}
