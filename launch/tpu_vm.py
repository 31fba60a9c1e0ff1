#!/usr/bin/env python3
"""Trains on a Cloud TPU slice (or several) through queued resources, spot or on demand, from this checkout.

    launch/tpu_vm.py run NAME --topology v5p:4x4x4 --zone us-east5-a --spot -- configs/t5_11b.py --workdir gs://BUCKET/t5_11b
    launch/tpu_vm.py log NAME --zone us-east5-a       # follow the log again
    launch/tpu_vm.py stop NAME --zone us-east5-a      # save and end; the machines stay
    launch/tpu_vm.py delete NAME --zone us-east5-a    # give the machines back

What follows `--` is what follows `python -m t5x_lite train`. `run` checks config, mesh, workdir and data, requests the
machines, waits for them, ships the checkout, starts the run on every host and shows the log of host 0; after a
preemption it requests machines again, and the run goes on from its last checkpoint; when the run has ended well, the
machines are deleted. If this computer was switched off meanwhile, the same command takes up where things are.
`--dry-run` prints every command instead.

Needs the Google Cloud CLI, logged in, and for the check t5x_lite. On the hosts, systemd keeps the run alive.
"""

import argparse
import functools
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from check_first import CHECKOUT, Refusal, check_command, check_run

# What Google calls them: https://cloud.google.com/tpu/docs, pages v4, v5p, v5e, v6e and runtimes.
GENERATIONS = {
    # plan's name: (accelerator type, its unit per chip, runtime version)
    "v4": ("v4", 2, "tpu-ubuntu2204-base"),
    "v5p": ("v5p", 2, "v2-alpha-tpuv5"),
    "v5e": ("v5litepod", 1, "v2-alpha-tpuv5-lite"),
    "v6e": ("v6e", 1, "v2-alpha-tpuv6e"),
}
# The shape that an accelerator type of so many chips has; other shapes cannot be requested by type.
SHAPES_3D = "2x2x1, 2x2x2, 2x2x4, 2x4x4, 4x4x4, 4x4x8, 4x8x8, 8x8x8, 8x8x16, 8x16x16, 16x16x16, 16x16x24"
SHAPES_2D = "1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16"

# Flags of `gcloud compute tpus queued-resources create` that take a value and go through as they are; --gcloud passes
# on any other.
PASSED_ON = {
    "reservation": "the name of a reservation to take the machines from (gcloud alpha)",
    "network": "the machines' network; default: default",
    "subnetwork": "the machines' subnetwork",
    "service-account": "the account that the machines have, which reads the data and writes the workdir",
    "labels": "KEY=VALUE,... of the machines, for bills and rules",
    "tags": "network tags, for firewall rules",
    "valid-until-duration": "how long to wait for machines, such as 6h; the request then fails",
    "max-run-duration": "how long the machines live, such as 7d (gcloud alpha); the run goes on with new ones",
}
# Those that the released track does not have; https://cloud.google.com/sdk/gcloud/reference/alpha/compute/tpus.
OF_ALPHA = {"--reservation", "--max-run-duration", "--provisioning-model", "--best-effort", "--network-config"}
SSH = {"external": [], "internal": ["--internal-ip"], "iap": ["--tunnel-through-iap"]}

# Commands for the hosts. The script that they call, launch/tpu_vm_host.sh, comes with the checkout.
HOST = "t5x_lite/launch/tpu_vm_host.sh"
INSTALL = f"rm -rf t5x_lite && mkdir t5x_lite && tar -xzf t5x_lite.tar.gz -C t5x_lite && {HOST} install"
START = f"{HOST} start"
FOLLOW = f"{HOST} follow"
UNIT_STATE = "systemctl show t5x_lite --property=SubState --property=ExecMainStatus"
# Without the first, a reboot would start it again.
STOP = "sudo systemctl disable --quiet t5x_lite && sudo systemctl stop t5x_lite"

# So often in a row is tried, half a minute apart, what may fail by chance.
PATIENCE = 10


@dataclass(frozen=True)
class Machines:
    """A queued resource by its name; the methods give the commands about it."""

    name: str
    zone: str
    project: str | None = None
    ssh: str = "external"

    def gcloud(self, verb: str, *arguments: str) -> list[str]:
        where = [f"--zone={self.zone}", *([f"--project={self.project}"] if self.project else []), "--quiet"]
        track = ["alpha"] if any(word.partition("=")[0] in OF_ALPHA for word in arguments) else []
        return ["gcloud", *track, "compute", "tpus", "queued-resources", verb, *arguments, *where]

    def create(self, topology: str, slices: int, runtime_version: str | None, flags: Sequence[str]) -> list[str]:
        accelerator_type, runtime = accelerator(topology)
        nodes = f"--node-id={self.name}" if slices == 1 else f"--node-count={slices}"
        return self.gcloud(
            "create",
            self.name,
            nodes,
            f"--accelerator-type={accelerator_type}",
            f"--runtime-version={runtime_version or runtime}",
            *flags,
        )

    def state(self) -> list[str]:
        # `list` rather than `describe`: what is not there is an empty answer, no error.
        return self.gcloud("list", f'--filter=name ~ "/{self.name}$"', "--format=value(state.state)")

    def delete(self) -> list[str]:
        return self.gcloud("delete", self.name, "--force")

    def copy(self, archive: Path) -> list[str]:
        target = f"{self.name}:t5x_lite.tar.gz"
        return self.gcloud("scp", str(archive), target, "--node=all", "--worker=all", *SSH[self.ssh])

    def on_all(self, command: str) -> list[str]:
        return self._on("all", command)

    def on_first(self, command: str) -> list[str]:
        return self._on("0", command)

    def _on(self, hosts: str, command: str) -> list[str]:
        where = [f"--node={hosts}", f"--worker={hosts}"]
        return self.gcloud("ssh", self.name, *where, f"--command={command}", *SSH[self.ssh])


def accelerator(topology: str) -> tuple[str, str]:
    """Accelerator type and runtime version for a topology as `plan` names it, such as v5p:4x4x4. Raises `Refusal`."""
    generation, _, shape = topology.partition(":")
    if generation == "tpu7x":
        raise Refusal("topology=tpu7x is offered by GKE alone; use launch/gke_jobset.py")
    if generation not in GENERATIONS:
        raise Refusal(
            f"topology={topology} does not begin with a known generation; choose one of {', '.join(GENERATIONS)}"
        )
    shapes = SHAPES_3D if generation in ("v4", "v5p") else SHAPES_2D
    if shape not in shapes.split(", "):
        raise Refusal(f"topology={topology} cannot be requested; choose {generation}: with one of {shapes}")
    chips = 1
    for size in shape.split("x"):
        chips *= int(size)
    prefix, per_chip, runtime = GENERATIONS[generation]
    return f"{prefix}-{chips * per_chip}", runtime


def check_train(arguments: Sequence[str]) -> None:
    """Raises `Refusal` for a command that would fail, or lose its checkpoints, on machines that are paid for."""
    if not arguments:
        raise Refusal("the config is missing; put what follows `python -m t5x_lite train` after --")
    if Path(arguments[0]).is_absolute() or not (CHECKOUT / arguments[0]).is_file():
        raise Refusal(f"config {arguments[0]} is not a file of this checkout; name one relative to {CHECKOUT}")
    workdir = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    workdir.add_argument("--workdir", default="")
    folder = workdir.parse_known_args(arguments[1:])[0].workdir
    if "://" not in folder and not folder.startswith("/"):
        raise Refusal(
            f"workdir={folder or 'runs/...'} lies on disks that are lost with the machines; "
            "choose a bucket (--workdir gs://BUCKET/FOLDER) or a shared file system's absolute path"
        )


def create_flags(arguments: argparse.Namespace) -> list[str]:
    """The flags of gcloud's `create` for the options of `run`. Raises `Refusal` for two that exclude each other."""
    reserved = arguments.reserved or arguments.reservation
    if arguments.spot and reserved:
        raise Refusal("--spot and a reservation are two ways to get machines; choose one of them")
    if arguments.reserved and arguments.reservation:
        raise Refusal("--reserved takes any reservation and --reservation one; choose one of them")
    names = ("spot", "reserved", "internal-ips")
    switches = [f"--{name}" for name in names if getattr(arguments, name.replace("-", "_"))]
    given = {name: getattr(arguments, name.replace("-", "_")) for name in PASSED_ON}
    disks = [f"--data-disk={disk}" for disk in arguments.data_disk]
    return [*switches, *(f"--{name}={value}" for name, value in given.items() if value), *disks, *arguments.gcloud]


def pack(archive: Path) -> None:
    """Writes the checkout to `archive`: what git knows, and what it does not ignore, as it is now."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    if listed.returncode:
        raise Refusal(f"{CHECKOUT} is not a git checkout; launch from one")
    with tarfile.open(archive, "w:gz") as tar:
        for name in sorted(set(filter(None, listed.stdout.split("\0")))):
            if (CHECKOUT / name).exists():
                tar.add(CHECKOUT / name, name)


def call(command: Sequence[str]) -> None:
    """Runs a command that has to succeed."""
    if status := subprocess.run(command).returncode:
        raise RuntimeError(f"{shlex.join(command[:6])} ended with status {status}; its output is above")


def answer(command: Sequence[str]) -> str | None:
    """What a command prints; None if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return None if done.returncode else done.stdout.strip()


def unit_state(machines: Machines) -> dict[str, str]:
    """SubState and ExecMainStatus of the run on host 0; nothing if it cannot be reached."""
    lines = (answer(machines.on_first(UNIT_STATE)) or "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def wait_for(machines: Machines, request: Callable[[], None], pause: Callable[[], None]) -> None:
    """Returns when the machines are there; requests them if need be, and again after a preemption."""
    message, failures = None, 0
    while (state := answer(machines.state())) != "ACTIVE":
        if state is None:
            failures += 1
            if failures == PATIENCE:
                raise RuntimeError("gcloud does not answer; its output is above")
            pause()
            continue
        if state != message:
            print(f"{machines.name}: {state or 'not there'}", flush=True)
        message, failures = state, 0
        if state == "FAILED":
            raise RuntimeError(f"the request for {machines.name} failed; have gcloud describe it, then delete it")
        if state == "SUSPENDED":
            call(machines.delete())
        elif not state:
            request()
        else:
            pause()


def run(machines: Machines, request: Callable[[], None], start: str, pause: Callable[[], None]) -> None:
    """From no machines, or from the current state, to the end of the run."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "t5x_lite.tar.gz")
        pack(archive)  # once: a restart runs the same code
        failures = 0
        while failures < PATIENCE:
            wait_for(machines, request, pause)
            state = unit_state(machines).get("SubState")
            steps = (machines.copy(archive), machines.on_all(INSTALL), machines.on_all(start))
            to_start = steps if state in ("dead", "failed") else ()
            if state is None or any(subprocess.run(step).returncode for step in to_start):
                failures += 1  # machines that are not quite up, or just going
                pause()
                continue
            failures = 0
            subprocess.run(machines.on_first(FOLLOW))  # ends with the run, with the machines or with the connection
            if ended(machines, pause):
                print(f"{machines.name}: the run has ended", flush=True)
                return call(machines.delete())
        raise RuntimeError("the hosts cannot be reached or set up: see above; mind that the machines cost money")


def ended(machines: Machines, pause: Callable[[], None]) -> bool:
    """Whether the run has ended well; False if it goes on or its machines went. Raises `RuntimeError` if it failed."""
    state = unit_state(machines)
    for _ in range(PATIENCE):
        if state.get("SubState") not in ("failed", "dead"):
            return state.get("SubState") == "exited"
        if state.get("ExecMainStatus") != "75":
            break
        # Saved and stopped: either by hand, or by machines that shut down and are about to vanish.
        pause()
        state = unit_state(machines)
    raise RuntimeError(
        f"the run ended with status {state.get('ExecMainStatus')}; the machines are still there and cost money: "
        "run the same command again, or delete them"
    )


def show(machines: Machines, check: Sequence[str], create: Sequence[str], start: str) -> None:
    """Prints what `run` would do."""
    archive = Path("t5x_lite.tar.gz")
    checked = [["python", *check]] if check else []
    for comment, *commands in (
        (
            f"check the run and ask for the machines, unless {machines.name} is there",
            machines.state(),
            *checked,
            create,
        ),
        ("ship this checkout: what git knows or does not ignore", machines.copy(archive)),
        ("install and start on every host", machines.on_all(INSTALL), machines.on_all(start)),
        ("follow host 0 to the end of the run, then see how it ended", *map(machines.on_first, (FOLLOW, UNIT_STATE))),
        ("after a preemption, delete and begin again from the top; after the end, delete", machines.delete()),
    ):
        print(f"# {comment}", *map(shlex.join, commands), sep="\n")
    print(f"# tpu_vm_host.sh, on the hosts:\n{(CHECKOUT / 'launch/tpu_vm_host.sh').read_text()}", end="")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message}; see --help")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topology", required=True, help="of one slice, as `plan` names it: v5p:4x4x4")
    parser.add_argument("--slices", type=int, default=1, help="how many, joined by the data-centre network")
    parser.add_argument("--runtime-version", help="default: the topology's")
    parser.add_argument("--no-check", action="store_true", help="ask for the machines without a check of the run")
    parser.add_argument("--spot", action="store_true", help="cheaper, and taken away now and then")
    parser.add_argument("--reserved", action="store_true", help="from the project's reservations")
    parser.add_argument("--internal-ips", action="store_true", help="no addresses that the internet sees")
    parser.add_argument(
        "--data-disk",
        action="append",
        default=[],
        metavar="source=DISK,mode=read-only",
        help="a disk to attach to every host, which has to mount it; may be repeated",
    )
    for name, what in PASSED_ON.items():
        parser.add_argument(f"--{name}", help=what)
    parser.add_argument(
        "--gcloud", action="append", default=[], metavar="FLAG", help="any other flag of create: --gcloud=--async"
    )


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    argv = list(argv)
    options, train = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = Parser(prog="tpu_vm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="{run,log,stop,delete}")
    for verb in ("run", "log", "stop", "delete"):
        of_verb = verbs.add_parser(verb)
        of_verb.add_argument("name", help="of the queued resource; lower-case letters, digits and hyphens")
        of_verb.add_argument("--zone", required=True)
        of_verb.add_argument("--project", help="default: gcloud's")
        of_verb.add_argument("--dry-run", action="store_true", help="print every command instead")
        of_verb.add_argument(
            "--ssh", choices=SSH, help="the hosts' addresses, or the Identity-Aware Proxy; with --internal-ips: iap"
        )
        if verb == "run":
            _add_run_options(of_verb)
    arguments = parser.parse_args(options)
    if train and arguments.verb != "run":
        raise Refusal(f"{arguments.verb} takes nothing after --; only run trains")
    return arguments, train


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: 0, 1 for a run or a command that failed, 2 for bad input."""
    try:
        arguments, train = parse(argv)
        ssh = arguments.ssh or ("iap" if getattr(arguments, "internal_ips", False) else "external")
        machines = Machines(arguments.name, arguments.zone, arguments.project, ssh)
        if arguments.verb == "run":
            check_train(train)
            if not re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", arguments.name):
                raise Refusal(
                    f"name={arguments.name} is not a valid name; choose up to 40 lower-case letters, digits and hyphens"
                )
            if arguments.slices < 1:
                raise Refusal(f"slices={arguments.slices} is too small; choose 1 or more")
            flags = create_flags(arguments)
            create = machines.create(arguments.topology, arguments.slices, arguments.runtime_version, flags)
            check = [] if arguments.no_check else check_command(arguments.topology, arguments.slices, train)
            start = f"{START} {shlex.join(train)}"
            if arguments.dry_run:
                show(machines, check, create, start)
                return 0
            checked = functools.cache(lambda: check and check_run(check))  # once, not after each preemption

            def request() -> None:
                checked()
                call(create)

            run(machines, request, start, pause=lambda: time.sleep(30))
            return 0
        commands = {"log": machines.on_first(FOLLOW), "stop": machines.on_all(STOP), "delete": machines.delete()}
        command = commands[arguments.verb]
        if arguments.dry_run:
            print(shlex.join(command))
        else:
            call(command)
        return 0
    except Refusal as refusal:
        status = 2
        print(f"tpu_vm: {refusal}", file=sys.stderr)
    except RuntimeError as error:
        status = 1
        print(f"tpu_vm: {error}", file=sys.stderr)
    except FileNotFoundError as error:
        status = 2
        print(f"tpu_vm: {error.filename} is not installed; install the Google Cloud CLI and git", file=sys.stderr)
    except KeyboardInterrupt:
        status = 130
        print("tpu_vm: interrupted; the machines go on: run the same command again, or delete them", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
