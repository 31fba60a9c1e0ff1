#!/usr/bin/env bash
# Hands a run to XPK (pip install xpk), which keeps clusters of GKE with Kueue and submits JobSets to them:
#
#     launch/xpk.sh --project=PROJECT --zone=us-east5-a NAME CLUSTER v5p-128 IMAGE configs/t5_11b.py --workdir gs://BUCKET/t5_11b
#     xpk workload list --cluster CLUSTER; xpk workload delete --cluster CLUSTER --workload NAME
#
# The image is built from launch/Dockerfile; what follows it is what follows `python -m t5x_lite train`. Config, mesh,
# workdir and data are checked first. Before NAME go --dry-run, which prints the commands, --no-check, and options of
# `xpk workload create` in one word each, such as --num-slices=2, --priority=high, --spot, --reservation=NAME and
# --storage=NAME. XPK's own --dry-run, behind the printed command, prints the JobSet that it makes.
set -euo pipefail
cd "$(dirname "$0")/.."

dry_run='' check=yes options=() slices=()
while [[ ${1-} == -* ]]; do
  case "$1" in
    --dry-run) dry_run=yes ;;
    --no-check) check='' ;;
    --num-slices=*)
      slices=(--slices "${1#*=}")
      options+=("$1")
      ;;
    *) options+=("$1") ;;
  esac
  shift
done
if [ $# -lt 5 ]; then
  echo "usage: launch/xpk.sh [--dry-run] [--no-check] [options of xpk] NAME CLUSTER TPU_TYPE IMAGE CONFIG --workdir gs://BUCKET/FOLDER [options of train]" >&2
  exit 2
fi
[[ " $*" == *" --workdir"[=\ ]*://* ]] || {
  echo "xpk: the workdir is lost with the pods; choose a bucket (--workdir gs://BUCKET/FOLDER)" >&2
  exit 2
}

name=$1 cluster=$2 type=$3 image=$4 config=$5
shift 4
printf -v train '%q ' "$@"
checking=(python -m t5x_lite check "$config" --topology "$type" ${slices[@]+"${slices[@]}"} "${@:2}")
# XPK restarts after a crash, a preemption and a stop alike, so often in all; status 2, bad input, ends the run.
launching=(
  xpk workload create ${options[@]+"${options[@]}"}
  --workload="$name" --cluster="$cluster" --tpu-type="$type" --docker-image="$image"
  --max-restarts=10 "--restart-on-exit-codes=1,75" --termination-grace-period-seconds=600
  --env=T5X_LITE_SUPERVISED=1 --command="python -u -m t5x_lite train ${train% }"
)

if [ -n "$dry_run" ]; then
  [ -z "$check" ] || { printf '%q ' "${checking[@]}"; echo; }
  printf '%q ' "${launching[@]}"
  echo
  exit 0
fi
if [ -n "$check" ] && ! "${checking[@]}"; then
  echo "xpk: the run could not begin, see above, and no machines were asked for; --no-check does so" >&2
  exit 2
fi
exec "${launching[@]}"
