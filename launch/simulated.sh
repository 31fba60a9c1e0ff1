#!/usr/bin/env bash
# Runs a command of t5x_lite on N simulated devices of this machine's CPU: to try a mesh before a pod is paid for.
#
#     launch/simulated.sh 8 train configs/t5_tiny.py --mesh.fsdp 2 --mesh.tensor 2 --steps 20
set -euo pipefail

if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: launch/simulated.sh NUMBER_OF_DEVICES COMMAND ..." >&2
  exit 2
fi
export JAX_PLATFORMS=cpu XLA_FLAGS="--xla_force_host_platform_device_count=$1 ${XLA_FLAGS:-}"
shift
exec python -m t5x_lite "$@"
