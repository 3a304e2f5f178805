# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
# shellcheck shell=bash
# Completion of memwaitctl for bash.

_memwaitctl()
{
	local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words='' i files=0
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		words='info list owners users top wait notify --help --version'
	elif [[ $word = -* ]]; then
		case $command in
		list) words='--json --word --pid' ;;
		owners) words='--all' ;;
		top) words='--interval --count' ;;
		wait) words='--size --timeout' ;;
		esac
	else
		case $command-${COMP_WORDS[COMP_CWORD - 1]} in
		list---pid) words=$(cd /proc && echo [0-9]*) ;;
		list---word) files=1 ;;
		wait---size) words='1 2 4 8' ;;
		wait---timeout) ;;
		wait-*)
			# Options with their values come first.
			for ((i = 2; i < COMP_CWORD; i += 2)); do
				[[ ${COMP_WORDS[i]} = -* ]] || break
			done
			[ "$i" -ne "$COMP_CWORD" ] || files=1
			;;
		notify-*) [ "$COMP_CWORD" -ne 2 ] || files=1 ;;
		esac
	fi
	[ -z "$words" ] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
	[ "$files" -eq 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
}

complete -F _memwaitctl memwaitctl
