#!/usr/bin/env python3
"""Fills in launch/gke_jobset.yaml and hands it to kubectl.

    docker build -f launch/Dockerfile -t IMAGE . && docker push IMAGE
    launch/gke_jobset.py NAME --topology v5p:4x4x4 --image IMAGE -- configs/t5_11b.py --workdir gs://BUCKET/t5_11b
    kubectl get jobset NAME        # how it is
    kubectl logs --follow --selector=jobset.sigs.k8s.io/jobset-name=NAME,batch.kubernetes.io/job-completion-index=0
    kubectl delete jobset NAME     # save and end; the same command goes on

What follows `--` is what follows `python -m t5x_lite train`. Config, mesh, workdir and data are checked first.
`--dry-run` prints the commands and the JobSet instead, which can be kept, or changed by hand. The cluster needs node
pools of the topology, and JobSet; with --queue also Kueue, and with --mount the add-on for Cloud Storage FUSE.
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

from check_first import Refusal, check_command, check_run

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
# https://kueue.sigs.k8s.io/docs/tasks/run/jobsets and /docs/concepts/workload_priority_class
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"


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
    if arguments.spot and arguments.reservation:
        raise Refusal("--spot and --reservation are two ways to get machines; choose one of them")
    if arguments.priority and not arguments.queue:
        raise Refusal(f"priority={arguments.priority} is of a queue of Kueue; give --queue, too")
    queue = {QUEUE: arguments.queue, PRIORITY: arguments.priority}
    labels = {key: value for key, value in queue.items() if value} | dict(map(label, arguments.label))
    mounts = list(map(mount, arguments.mount))
    given = {
        "--spot": arguments.spot,
        "--namespace": arguments.namespace,
        "--label": labels,
        "--reservation": arguments.reservation,
        "--mount": mounts,
    }
    absent = tuple(f"# with {option}\n" for option, value in given.items() if not value)
    template = "".join(line for line in template.splitlines(keepends=True) if not line.endswith(absent))
    return Template(template[template.index("apiVersion") :]).substitute(
        name=arguments.name,
        namespace=json.dumps(arguments.namespace),
        labels=json.dumps(labels),
        reservation=json.dumps(arguments.reservation),
        volumes=json.dumps([volume for volume, _ in mounts]),
        volume_mounts=json.dumps([in_container for _, in_container in mounts]),
        slices=arguments.slices,
        hosts=chips // chips_per_host,
        chips_per_host=chips_per_host,
        accelerator=ACCELERATORS[generation],
        topology=shape,
        image=json.dumps(arguments.image),
        service_account=arguments.service_account,
        arguments=json.dumps(["train", *train]),
    )


def label(given: str) -> tuple[str, str]:
    """A label's key and value. Raises `Refusal` for another form."""
    key, equals, value = given.partition("=")
    if not equals or not key:
        raise Refusal(f"label={given} is not a label; write KEY=VALUE")
    return key, value


def mount(given: str) -> tuple[dict, dict]:
    """The volume for a bucket, and where the container has it. Raises `Refusal` for another form than BUCKET=/PATH."""
    match = re.fullmatch(r"(?:gs://)?([a-z0-9][-_.a-z0-9]+)/?=(/[^:]+)(:rw)?", given)
    if match is None:
        raise Refusal(f"mount={given} is not a mount; write BUCKET=/PATH, or BUCKET=/PATH:rw to write there too")
    bucket, path, writable = match.groups()
    name = re.sub("[^a-z0-9]+", "-", f"bucket-{bucket}")[:63].rstrip("-")
    attributes = {"bucketName": bucket, "mountOptions": "implicit-dirs"}
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "readOnly": not writable, "volumeAttributes": attributes}
    return {"name": name, "csi": csi}, {"name": name, "mountPath": path, "readOnly": not writable}


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
    parser.add_argument("--namespace", default="", help="of Kubernetes; default: kubectl's")
    parser.add_argument("--reservation", default="", help="the name of a reservation whose node pools to take")
    parser.add_argument("--queue", default="", help="a local queue of Kueue, which starts the run when its turn comes")
    parser.add_argument("--priority", default="", help="a workload priority class of Kueue")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    parser.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="BUCKET=/PATH[:rw]",
        help="a bucket as a folder, through Cloud Storage FUSE; may be repeated",
    )
    parser.add_argument("--no-check", action="store_true", help="hand the JobSet over without a check of the run")
    parser.add_argument("--dry-run", action="store_true", help="print the command and the JobSet instead")
    return parser.parse_args(options), train


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: kubectl's, or 2 for bad input."""
    try:
        arguments, train = parse(argv)
        check_train(train)
        jobset = fill((FOLDER / "gke_jobset.yaml").read_text(), arguments, train)
        check = [] if arguments.no_check else check_command(arguments.topology, arguments.slices, train)
        if arguments.dry_run:
            checked = f"{shlex.join(['python', *check])} &&\n" if check else ""
            print(f"{checked}{shlex.join(APPLY)} <<'JOBSET'\n{jobset}JOBSET")
            return 0
        if check:
            check_run(check)
        return subprocess.run(APPLY, input=jobset, text=True).returncode
    except Refusal as refusal:
        print(f"gke_jobset: {refusal}", file=sys.stderr)
    except FileNotFoundError as error:
        print(f"gke_jobset: {error.filename} is not installed; install kubectl", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
