#!/usr/bin/env bash
# Runs a command of t5x_lite on N simulated devices of this machine's CPU: to try a mesh before a pod is paid for.
#
#     launch/simulated.sh 8 train configs/t5_tiny.py --mesh.fsdp 2 --mesh.tensor 2 --steps 20
#     launch/simulated.sh --dry-run 8 train configs/t5_tiny.py     # print the command instead
set -euo pipefail

dry_run=
[ "${1-}" != --dry-run ] || { dry_run=yes; shift; }
if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: launch/simulated.sh [--dry-run] NUMBER_OF_DEVICES COMMAND ..." >&2
  exit 2
fi
flags="--xla_force_host_platform_device_count=$1${XLA_FLAGS:+ $XLA_FLAGS}"
shift
command=(env JAX_PLATFORMS=cpu XLA_FLAGS="$flags" python -m t5x_lite "$@")
[ -z "$dry_run" ] || { printf '%q ' "${command[@]}"; echo; exit 0; }
exec "${command[@]}"
