#!/usr/bin/env bash
# A run over all hosts of a Cloud TPU slice, by gcloud (which must be logged in, with a project).
#
#   export TPU=my-slice ZONE=us-central2-b
#   scripts/tpu/slice.sh create v4-32 tpu-ubuntu2204-base         # further options of gcloud may follow, such as --spot
#   scripts/tpu/slice.sh install                                  # copies this checkout to every host; Python 3.11
#   scripts/tpu/slice.sh mount 10.0.0.2:/share                    # a file system (NFS) that all hosts share, at /shared
#   scripts/tpu/slice.sh run sgdlab train --config=configs/cifar10_resnet20.py --workdir=/shared/runs/resnet20
#   scripts/tpu/slice.sh stop                                     # checkpoint, then end; `run` continues
#   scripts/tpu/slice.sh delete
#
# `run` adds --hosts=auto to the command: jax finds the hosts of the slice.
set -euo pipefail

usage() {
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
: "${TPU:?name of the slice, such as my-slice}" "${ZONE:?zone of the slice, such as us-central2-b}"
(($#)) || usage
verb=$1
shift

vm=(gcloud compute tpus tpu-vm)
everywhere() {
  "${vm[@]}" ssh "$TPU" --zone="$ZONE" --worker=all --command="$1"
}

case $verb in
  create)
    (($# >= 2)) || usage
    "${vm[@]}" create "$TPU" --zone="$ZONE" --accelerator-type="$1" --version="$2" "${@:3}"
    ;;
  install)
    root=$(cd "$(dirname "$0")/../.." && pwd)
    archive=$(mktemp --suffix=.tar.gz)
    trap 'rm -f "$archive"' EXIT
    tar -C "$root" --exclude=.git --exclude=".venv*" --exclude=".*_cache" --exclude=__pycache__ --exclude=./runs --exclude=./build \
      -czf "$archive" . || (($? == 1)) # 1: a file changed meanwhile
    "${vm[@]}" scp "$archive" "$TPU:sgdlab.tar.gz" --zone="$ZONE" --worker=all
    everywhere "sudo apt-get update -qq && sudo apt-get install -qq -y python3.11-venv nfs-common && \
rm -rf sgdlab && mkdir sgdlab && tar -C sgdlab -xzf sgdlab.tar.gz && \
python3.11 -m venv venv && venv/bin/pip install -q './sgdlab[tpu,experiments]'"
    ;;
  mount)
    (($# == 1)) || usage
    everywhere "sudo mkdir -p /shared && (mountpoint -q /shared || sudo mount -t nfs $(printf %q "$1") /shared)"
    ;;
  run)
    (($#)) || usage
    # The output goes to a file on each host too, so that a connection that breaks does not end the command.
    everywhere "cd sgdlab && export PATH=\$HOME/venv/bin:\$PATH && \
{ echo \$BASHPID >../sgdlab.pid; exec $(printf '%q ' "$@")--hosts=auto; } 2>&1 | tee -p -a ../sgdlab.log; \
exit \${PIPESTATUS[0]}"
    ;;
  stop) everywhere "kill -TERM \$(cat sgdlab.pid)" ;;
  delete) "${vm[@]}" delete "$TPU" --zone="$ZONE" --quiet ;;
  *) usage ;;
esac
