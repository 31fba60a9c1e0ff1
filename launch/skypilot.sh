#!/usr/bin/env bash
# Hands launch/skypilot.yaml to SkyPilot as a managed job; from the checkout, with `pip install 'skypilot[gcp]'` done:
#
#     launch/skypilot.sh NAME tpu-v5p-128 configs/t5_11b.py --workdir gs://BUCKET/t5_11b
#     sky jobs queue; sky jobs logs --name NAME; sky jobs cancel --name NAME
#
# The accelerator is SkyPilot's name for it (`sky gpus list`); what follows is what follows `python -m t5x_lite train`.
# With --dry-run before NAME it prints the command, and what every host would run.
set -euo pipefail
cd "$(dirname "$0")/.."

command=()
[ "${1-}" != --dry-run ] || { command=(dry_run); shift; }
if [ $# -lt 3 ]; then
  echo "usage: launch/skypilot.sh [--dry-run] NAME ACCELERATOR CONFIG --workdir gs://BUCKET/FOLDER [options of train]" >&2
  exit 2
fi
[[ " $*" == *" --workdir"[=\ ]*://* ]] || {
  echo "skypilot: the workdir is lost with the machines; choose a bucket (--workdir gs://BUCKET/FOLDER)" >&2
  exit 2
}

dry_run() {
  printf '%q ' "$@"
  printf '\n# on every host, in the copy of the checkout:\n'
  sed -n '/^setup: |$/,$ { /^[a-z]*: |$/d; s/^  //; p }' launch/skypilot.yaml
}

name=$1 accelerator=$2
shift 2
printf -v train '%q ' "$@"
"${command[@]}" sky jobs launch --yes --name "$name" --gpus "$accelerator" --env "TRAIN=${train% }" launch/skypilot.yaml
