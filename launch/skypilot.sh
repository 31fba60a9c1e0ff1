#!/usr/bin/env bash
# Hands launch/skypilot.yaml to SkyPilot as a managed job; from the checkout, with `pip install 'skypilot[gcp]'` done:
#
#     launch/skypilot.sh NAME tpu-v5p-128 configs/t5_11b.py --workdir gs://BUCKET/t5_11b
#     sky jobs queue; sky jobs logs --name NAME; sky jobs cancel --name NAME
#
# The accelerator is SkyPilot's name for it (`sky gpus list`); what follows is what follows `python -m t5x_lite train`.
# Config, mesh, workdir and data are checked first, and then SkyPilot shows what it would take and its price, and asks.
# Before NAME go --dry-run, which prints the commands and what every host would run, --no-check, and options of
# `sky jobs launch` in one word each: --yes (does not ask), --infra=gcp/us-east5, --no-use-spot, --priority=500,
# --config=gcp.vpc_name=NETWORK, --config=gcp.subnet_names=[NAME], --config=gcp.use_internal_ips=true,
# --config=gcp.specific_reservations=[NAME], --config=gcp.labels.KEY=VALUE; and, for a service account that SkyPilot makes
# in place of your login, --config=gcp.remote_identity=SERVICE_ACCOUNT.
set -euo pipefail
cd "$(dirname "$0")/.."

dry_run='' check=yes options=()
while [[ ${1-} == -* ]]; do
  case "$1" in
    --dry-run) dry_run=yes ;;
    --no-check) check='' ;;
    *) options+=("$1") ;;
  esac
  shift
done
if [ $# -lt 3 ]; then
  echo "usage: launch/skypilot.sh [--dry-run] [--no-check] [options of sky] NAME ACCELERATOR CONFIG --workdir gs://BUCKET/FOLDER [options of train]" >&2
  exit 2
fi
[[ " $*" == *" --workdir"[=\ ]*://* ]] || {
  echo "skypilot: the workdir is lost with the machines; choose a bucket (--workdir gs://BUCKET/FOLDER)" >&2
  exit 2
}

name=$1 accelerator=$2 config=$3
shift 2
printf -v train '%q ' "$@"
checking=(python -m t5x_lite check "$config" --topology "$accelerator" "${@:2}")
launching=(sky jobs launch ${options[@]+"${options[@]}"} --name "$name" --gpus "$accelerator" --env "TRAIN=${train% }" launch/skypilot.yaml)

if [ -n "$dry_run" ]; then
  [ -z "$check" ] || { printf '%q ' "${checking[@]}"; echo; }
  printf '%q ' "${launching[@]}"
  printf '\n# on every host, in the copy of the checkout:\n'
  sed -n '/^setup: |$/,$ { /^[a-z]*: |$/d; s/^  //; p }' launch/skypilot.yaml
  exit 0
fi
if [ -n "$check" ] && ! "${checking[@]}"; then
  echo "skypilot: the run could not begin, see above, and no machines were asked for; --no-check does so" >&2
  exit 2
fi
exec "${launching[@]}"
