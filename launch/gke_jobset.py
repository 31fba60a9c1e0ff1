#!/usr/bin/env python3
"""Fills in launch/gke_jobset.yaml and hands it to kubectl.

    docker build -f launch/Dockerfile -t IMAGE . && docker push IMAGE
    launch/gke_jobset.py NAME --topology v5p:4x4x4 --image IMAGE -- configs/t5_11b.py --workdir gs://BUCKET/t5_11b
    kubectl get jobset NAME        # how it is
    kubectl logs --follow --selector=jobset.sigs.k8s.io/jobset-name=NAME,batch.kubernetes.io/job-completion-index=0
    kubectl delete jobset NAME     # save and end; the same command goes on

What follows `--` is what follows `python -m t5x_lite train`. `--dry-run` prints the command and the JobSet instead,
which can be kept, or changed by hand. The cluster needs node pools of the topology, and JobSet.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path
from string import Template
from typing import NoReturn

FOLDER = Path(__file__).resolve().parent

# Node labels: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus.
ACCELERATORS = {
    "v4": "tpu-v4-podslice",
    "v5e": "tpu-v5-lite-podslice",
    "v5p": "tpu-v5p-slice",
    "v6e": "tpu-v6e-slice",
    "tpu7x": "tpu7x",
}
NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"  # with what JobSet adds, a host name of 63 letters at most
APPLY = ["kubectl", "apply", "--filename=-"]


class Refusal(Exception):
    """Bad input, in one sentence: exit status 2."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message}; see --help")


def fill(template: str, arguments: argparse.Namespace, train: Sequence[str]) -> str:
    """The JobSet for these arguments. Raises `Refusal` for an invalid name or topology."""
    generation, _, shape = arguments.topology.partition(":")
    if generation not in ACCELERATORS or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){1,2}", shape):
        raise Refusal(
            f"topology={arguments.topology} is not valid; choose one of {', '.join(ACCELERATORS)} and a shape, as "
            "v5p:4x4x4"
        )
    chips = prod(map(int, shape.split("x")))
    chips_per_host = min(4, chips) if arguments.chips_per_host is None else arguments.chips_per_host
    if chips_per_host < 1 or chips % chips_per_host:
        raise Refusal(
            f"chips_per_host={chips_per_host} does not divide the {chips} chips of {arguments.topology}; choose 4"
        )
    if not re.fullmatch(NAME, arguments.name):
        raise Refusal(
            f"name={arguments.name} is not a valid name; choose up to 40 lower-case letters, digits and hyphens"
        )
    if arguments.slices < 1:
        raise Refusal(f"slices={arguments.slices} is too small; choose 1 or more")
    if not arguments.spot:
        template = "".join(line for line in template.splitlines(keepends=True) if not line.endswith("# with --spot\n"))
    return Template(template[template.index("apiVersion") :]).substitute(
        name=arguments.name,
        slices=arguments.slices,
        hosts=chips // chips_per_host,
        chips_per_host=chips_per_host,
        accelerator=ACCELERATORS[generation],
        topology=shape,
        image=json.dumps(arguments.image),
        service_account=arguments.service_account,
        arguments=json.dumps(["train", *train]),
    )


def check_train(train: Sequence[str]) -> None:
    """Raises `Refusal` for a run without a config, or whose checkpoints would be lost with its pods."""
    if not train:
        raise Refusal("the config is missing; put what follows `python -m t5x_lite train` after --")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--workdir", default="")
    workdir = parser.parse_known_args(train[1:])[0].workdir
    if "://" not in workdir:
        raise Refusal(
            f"workdir={workdir or 'runs/...'} is lost with the pods; choose a bucket (--workdir gs://BUCKET/FOLDER)"
        )


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    argv = list(argv)
    options, train = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = Parser(prog="gke_jobset", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the JobSet; lower-case letters, digits and hyphens")
    parser.add_argument("--topology", required=True, help="of one slice, as `plan` names it: v5p:4x4x4")
    parser.add_argument("--slices", type=int, default=1, help="how many, joined by the data-centre network")
    parser.add_argument("--chips-per-host", type=int, help="default: 4, or 1 for a single chip; 8 for machines of 8")
    parser.add_argument("--spot", action="store_true", help="on node pools of spot machines")
    parser.add_argument("--image", required=True, help="built from launch/Dockerfile")
    parser.add_argument("--service-account", default="default", help="of Kubernetes, that may write to the workdir")
    parser.add_argument("--dry-run", action="store_true", help="print the command and the JobSet instead")
    return parser.parse_args(options), train


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: kubectl's, or 2 for bad input."""
    try:
        arguments, train = parse(argv)
        check_train(train)
        jobset = fill((FOLDER / "gke_jobset.yaml").read_text(), arguments, train)
        if arguments.dry_run:
            print(f"{shlex.join(APPLY)} <<'JOBSET'\n{jobset}JOBSET")
            return 0
        return subprocess.run(APPLY, input=jobset, text=True).returncode
    except Refusal as refusal:
        print(f"gke_jobset: {refusal}", file=sys.stderr)
    except FileNotFoundError as error:
        print(f"gke_jobset: {error.filename} is not installed; install kubectl", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
