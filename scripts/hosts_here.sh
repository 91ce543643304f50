#!/usr/bin/env bash
# Runs a command as N connected processes on this machine, to try what many hosts would do.
#
#   scripts/hosts_here.sh 2 sgdlab train --workdir=runs/two_processes
#
# Every line of output begins with the number of its process. Ctrl-C or SIGTERM is passed on once to every process, and
# a second one too. The exit code is that of the first process that did not end with 0, or 0. Then the others have
# GRACE_SECONDS (15) to end; what is left then is terminated, and 10 seconds later killed. JAX_NUM_CPU_DEVICES=2 in the
# environment gives each process two devices of a CPU. GPUs are not divided: set CUDA_VISIBLE_DEVICES in the command.
set -um # each background command is a process group of its own, which Ctrl-C in a terminal does not reach

if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then
  echo "error: hosts_here.sh needs bash 5.1 or later, not $BASH_VERSION" >&2
  exit 2
fi
if [[ $# -lt 2 || ! ${1-} =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: hosts_here.sh N COMMAND [ARGUMENT...], with N of at least 1" >&2
  exit 2
fi
count=$1
shift
grace=${GRACE_SECONDS:-15}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || exit 1
pipes=$(mktemp -d) || exit 1
tied=()
if command -v setpriv >/dev/null; then tied=(setpriv --pdeathsig KILL --); fi # none outlives a script that is killed

printers=() killer=
declare -A number=() # of the process that each running process group belongs to
pass_on() {
  local group
  for group in "${!number[@]}"; do kill "-$1" -- "-$group" 2>/dev/null; done
}
# shellcheck disable=SC2329 # called by the trap
finish() {
  pass_on KILL
  [[ -n $killer ]] && kill -KILL -- "-$killer" 2>/dev/null
  wait "${printers[@]}" 2>/dev/null # they end when nobody is left to write
  rm -rf "$pipes"
}
trap finish EXIT
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM HUP

export SGDLAB_HOSTS=127.0.0.1:$port SGDLAB_NUM_PROCESSES=$count PYTHONUNBUFFERED=1
for ((index = 0; index < count; index++)); do
  mkfifo "$pipes/$index" || exit 1
  (trap '' INT TERM HUP && exec sed -u "s/^/$index: /" <"$pipes/$index") &
  printers+=($!)
  SGDLAB_PROCESS_ID=$index "${tied[@]}" "$@" </dev/null >"$pipes/$index" 2>&1 &
  number[$!]=$index
done

first=0
while ((${#number[@]})); do
  ended=
  wait -n -p ended "${!number[@]}" 2>/dev/null
  code=$?
  [[ -z ${ended-} ]] && continue # a signal came, and was passed on
  which=${number[$ended]}
  kill -KILL -- "-$ended" 2>/dev/null # what the process may have left behind
  unset "number[$ended]"
  if ((code && !first)); then
    first=$code
    signal=
    if ((code > 128)); then signal=" (SIG$(kill -l "$code"))"; fi
    echo "hosts_here: process $which ended with exit code $code$signal; the others have $grace s to end" >&2
    { sleep "$grace" && pass_on TERM && sleep 10 && pass_on KILL; } &
    killer=$!
    disown "$killer" # bash says nothing about its end
  fi
done
exit "$first"
