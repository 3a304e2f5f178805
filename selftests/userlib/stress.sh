#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs the stress program on the real device, each primitive for MEMWAIT_STRESS_SECONDS.
seconds=${MEMWAIT_STRESS_SECONDS:-${MEMWAIT_LOADS:+1}}
seconds=${seconds:-2}
cd "$(dirname "$0")" || exit 1
stress=stress/stress
[ -x $stress ] || stress=../build/userlib/$stress
primitives=$($stress)

echo "TAP version 13"
echo "1..$(echo "$primitives" | wc -l)"
bad=0
number=0
for primitive in $primitives; do
	number=$((number + 1))
	timeout $(((seconds + 120) * ${MEMWAIT_SLOWNESS:-1})) $stress "$primitive" "$seconds" >/tmp/stress.out 2>&1
	status=$?
	sed 's/^/# /' /tmp/stress.out
	if [ $status -eq 0 ]; then
		echo "ok $number $primitive"
	else
		echo "not ok $number $primitive: exit $status"
		bad=1
	fi
done
rm -f /tmp/stress.out
exit $bad
