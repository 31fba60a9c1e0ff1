"""Queued resources, from creation to deletion, with a gcloud whose answers the test sets."""

import json
import os
import shlex
import shutil
import subprocess
import tarfile

import pytest

TRAIN = ["configs/t5_base.py", "--workdir", "gs://bucket/run"]
RUN = ["run", "t5", "--topology", "v5p:2x2x4", "--zone", "us-east5-a", "--spot", "--", *TRAIN]


@pytest.fixture
def tpu_vm(script, monkeypatch):
    module = script("tpu_vm")
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(module, "check_run", lambda command: None)
    return module


@pytest.fixture(scope="session")
def archive(script, tmp_path_factory):
    """This checkout, packed once: it takes a second or two."""
    path = tmp_path_factory.mktemp("packed") / "checkout.tar.gz"
    script("tpu_vm").pack(path)
    return path


@pytest.fixture
def play(tpu_vm, archive, monkeypatch, stand_ins, capsys):
    """`play(states, units)`: runs with a gcloud that answers these states of the machines, and these of the run, one a
    call and the last ones for ever; returns the status, the output, and the calls of gcloud."""

    def play(states, units, arguments=RUN):
        for name, answers in (("list", states), ("UNIT", units)):
            (stand_ins.folder / name).write_text(json.dumps(answers))
        stand_ins.add("gcloud", does=ANSWERS.format(folder=str(stand_ins.folder)))
        monkeypatch.setattr(tpu_vm, "pack", lambda path: shutil.copyfile(archive, path))
        status = tpu_vm.main(arguments)
        out, err = capsys.readouterr()
        return status, out + err, [step(call) for call in stand_ins.calls]

    return play


ANSWERS = """
query = "UNIT" if any("systemctl show" in word for word in sys.argv) else sys.argv[4]
file = os.path.join({folder!r}, query)
if os.path.exists(file):
    answers = json.load(open(file))
    json.dump(answers[1:] or answers, open(file, "w"))
    if answers[0] is None:
        sys.exit(1)
    print(answers[0])
"""


def unit(state, status=0):
    return f"SubState={state}\nExecMainStatus={status}"


def step(call):
    """One word for a command: gcloud's verb, or the command of the hosts."""
    message = " ".join(call)
    words = {"tar -xzf": "install", "host.sh start": "start", "host.sh follow": "follow", "systemctl show": "unit"}
    return next((word for sign, word in words.items() if sign in message), call[4])


def test_from_nothing_to_the_end(play):
    status, output, steps = play(
        ["", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"], [unit("dead"), unit("running"), unit("exited")]
    )
    assert status == 0
    requests = ["list", "create", "list", "list", "list"]
    # The connection broke once while it followed; it reads the state and follows again.
    assert steps == [
        *requests,
        "unit",
        "scp",
        "install",
        "start",
        "follow",
        "unit",
        "list",
        "unit",
        "follow",
        "unit",
        "delete",
    ]
    assert "t5: WAITING_FOR_RESOURCES" in output
    assert "t5: the run has ended" in output


def test_a_preemption_brings_new_machines(play):
    states = ["", "ACTIVE", "SUSPENDING", "SUSPENDED", "", "ACTIVE"]
    status, _, steps = play(states, [unit("dead"), None, unit("dead"), unit("exited")])
    assert status == 0
    begun = ["unit", "scp", "install", "start", "follow", "unit"]
    assert steps == [
        "list",
        "create",
        "list",
        *begun,
        "list",
        "list",
        "delete",
        "list",
        "create",
        "list",
        *begun,
        "delete",
    ]


def test_the_run_is_checked_once_before_machines_are_asked_for(tpu_vm, play, stand_ins, monkeypatch):
    checked = []

    def check(command):
        assert [step(call) for call in stand_ins.calls] == ["list"], "before the request"
        checked.append(command)

    monkeypatch.setattr(tpu_vm, "check_run", check)
    states = ["", "ACTIVE", "SUSPENDED", "", "ACTIVE"]
    status, _, steps = play(states, [unit("dead"), None, unit("dead"), unit("exited")])
    assert (status, steps.count("create")) == (0, 2)
    assert checked == [["-m", "t5x_lite", "check", TRAIN[0], "--topology", "v5p:2x2x4", *TRAIN[1:]]]


def test_a_run_that_could_not_begin_gets_no_machines(tpu_vm, play, monkeypatch):
    def refuse(command):
        raise tpu_vm.Refusal("the data is not there")

    monkeypatch.setattr(tpu_vm, "check_run", refuse)
    status, output, steps = play([""], [])
    assert (status, steps) == (2, ["list"])
    assert output.splitlines()[-1] == "tpu_vm: the data is not there"


def test_without_a_check_machines_are_asked_for_regardless(tpu_vm, play, monkeypatch):
    monkeypatch.setattr(tpu_vm, "check_run", lambda command: pytest.fail("it was told not to"))
    options = [*RUN[:6], "--no-check", *RUN[6:]]
    status, _, steps = play(["", "ACTIVE"], [unit("dead"), unit("exited")], options)
    assert (status, steps[:2]) == (0, ["list", "create"])


def test_a_run_that_goes_on_is_taken_up(play):
    status, _, steps = play(["ACTIVE"], [unit("running"), unit("exited")])
    assert status == 0
    assert steps == ["list", "unit", "follow", "unit", "delete"]


def test_hosts_that_are_not_quite_up_are_tried_again(play):
    status, _, steps = play(["ACTIVE"], [None, None, unit("dead"), unit("exited")])
    assert status == 0
    assert steps == ["list", "unit"] * 3 + ["scp", "install", "start", "follow", "unit", "delete"]


@pytest.mark.parametrize("code", [1, 2])
def test_a_run_that_failed_keeps_its_machines_and_prints_it(play, code):
    status, output, steps = play(["ACTIVE"], [unit("dead"), unit("failed", code)])
    assert status == 1
    assert f"tpu_vm: the run ended with status {code}; the machines are still there and cost money" in output
    assert "delete" not in steps


def test_saved_and_stopped_by_hand_ends_by_machines_that_vanish_goes_on(play):
    status, output, _ = play(["ACTIVE"], [unit("running"), unit("failed", 75)])
    assert status == 1
    assert "ended with status 75" in output
    states = ["ACTIVE", "SUSPENDED", "", "ACTIVE"]
    units = [unit("running"), unit("failed", 75), unit("failed", 75), None, unit("dead"), unit("exited")]
    status, _, steps = play(states, units)
    assert status == 0
    assert steps.count("create") == 1


def test_a_gcloud_that_does_not_answer_is_called_ten_times(play):
    status, output, steps = play([None], [])
    assert status == 1
    assert "gcloud does not answer" in output
    assert steps == ["list"] * 10


def test_a_request_that_failed(play):
    status, output, steps = play(["FAILED"], [])
    assert status == 1
    assert "the request for t5 failed" in output
    assert steps == ["list"]


def test_the_dry_run_prints_every_command_that_a_run_issues(tpu_vm, play, stand_ins, capsys):
    assert tpu_vm.main([*RUN[:6], "--dry-run", *RUN[6:]]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert not stand_ins.log.exists(), "nothing was called"
    play(["", "ACTIVE"], [unit("dead"), unit("exited")])
    for name, *words in stand_ins.calls:
        words = ["t5x_lite.tar.gz" if word.endswith("/t5x_lite.tar.gz") else word for word in words]
        assert shlex.join([name, *words]) in printed


def test_slices_project_and_on_demand(tpu_vm, capsys):
    options = ["--topology", "v6e:16x16", "--slices", "3", "--zone", "z", "--project", "p", "--dry-run"]
    assert tpu_vm.main(["run", "t5", *options, "--", *TRAIN]) == 0
    create = next(line for line in capsys.readouterr().out.splitlines() if " create " in line).split()
    assert {"--node-count=3", "--accelerator-type=v6e-256", "--runtime-version=v2-alpha-tpuv6e", "--project=p"} < set(
        create
    )
    assert "--spot" not in create
    assert not any(word.startswith("--node-id") for word in create)


def dry_run(tpu_vm, capsys, *options):
    """The commands of gcloud that a run with these options prints, by their verbs."""
    arguments = ["run", "t5", "--topology", "v5p:2x2x4", "--zone", "z", *options, "--dry-run", "--", *TRAIN]
    assert tpu_vm.main(arguments) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if line.startswith("gcloud ")]
    return {line[line.index("queued-resources") + 1]: line for line in lines}


OWNED = {
    "--network": "net",
    "--subnetwork": "projects/p/regions/r/subnetworks/s",
    "--service-account": "trainer@p.iam.gserviceaccount.com",
    "--labels": "team=nlp,run=t5",
    "--tags": "tpu",
    "--valid-until-duration": "6h",
}
DISK = "source=projects/p/zones/z/disks/data,mode=read-only"


def test_what_owned_machines_need_goes_through_to_gcloud(tpu_vm, capsys):
    options = [*(word for pair in OWNED.items() for word in pair), "--reserved", "--internal-ips"]
    create = dry_run(tpu_vm, capsys, *options, "--data-disk", DISK, "--data-disk", DISK)["create"]
    assert {f"{name}={value}" for name, value in OWNED.items()} < set(create)
    assert {"--reserved", "--internal-ips"} < set(create)
    assert create.count(f"--data-disk={DISK}") == 2
    assert create[:4] == ["gcloud", "compute", "tpus", "queued-resources"]


def test_any_other_flag_goes_through_too(tpu_vm, capsys):
    create = dry_run(tpu_vm, capsys, "--gcloud=--description=T5 base", "--gcloud=--shielded-secure-boot")["create"]
    assert {"--description=T5 base", "--shielded-secure-boot"} < set(create)


@pytest.mark.parametrize(
    "option", ["--reservation=mine", "--max-run-duration=7d", "--gcloud=--provisioning-model=flex-start"]
)
def test_flags_of_gcloud_alpha_alone_are_given_to_it(tpu_vm, capsys, option):
    commands = dry_run(tpu_vm, capsys, option)
    assert commands["create"][:5] == ["gcloud", "alpha", "compute", "tpus", "queued-resources"]
    assert option.removeprefix("--gcloud=") in commands["create"]
    assert commands["delete"][1] == "compute", "the others are of the released track"


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ([], None),
        (["--internal-ips"], "--tunnel-through-iap"),
        (["--internal-ips", "--ssh", "internal"], "--internal-ip"),
        (["--ssh", "iap"], "--tunnel-through-iap"),
    ],
)
def test_hosts_without_public_addresses_are_reached_another_way(tpu_vm, capsys, options, flag):
    commands = dry_run(tpu_vm, capsys, *options)
    ways = {"--tunnel-through-iap", "--internal-ip"}
    for verb in ("ssh", "scp"):
        assert ways & set(commands[verb]) == ({flag} if flag else set())
    assert not ways & {*commands["create"], *commands["delete"]}
    if options[-2:-1] == ["--ssh"]:
        assert tpu_vm.main(["log", "t5", "--zone", "z", *options[-2:], "--dry-run"]) == 0
        assert flag in shlex.split(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("topology", "name"),
    [
        ("v4:2x2x4", "v4-32"),
        ("v5p:2x2x1", "v5p-8"),
        ("v5p:4x4x4", "v5p-128"),
        ("v5p:8x8x16", "v5p-2048"),
        ("v5p:16x16x24", "v5p-12288"),
        ("v5e:4x4", "v5litepod-16"),
        ("v6e:16x16", "v6e-256"),
    ],
)
def test_accelerator_types(tpu_vm, topology, name):
    assert tpu_vm.accelerator(topology)[0] == name


BAD = {
    "no config": ([*RUN[:8]], "the config is missing"),
    "no such config": ([*RUN[:8], "configs/t6.py", *TRAIN[1:]], "config configs/t6.py is not a file of this checkout"),
    "workdir left out": ([*RUN[:8], TRAIN[0]], "workdir=runs/... lies on disks that are lost"),
    "workdir on the machines": ([*RUN[:8], TRAIN[0], "--workdir=runs/a"], "workdir=runs/a lies on disks that are lost"),
    "unknown generation": (["run", "t5", "--topology", "v9:2x2", "--zone", "z", "--", *TRAIN], "choose one of v4, v5p"),
    "unknown shape": (
        ["run", "t5", "--topology", "v5e:3x3", "--zone", "z", "--", *TRAIN],
        "choose v5e: with one of 1x1",
    ),
    "GKE alone": (["run", "t5", "--topology", "tpu7x:2x2x1", "--zone", "z", "--", *TRAIN], "use launch/gke_jobset.py"),
    "no slices": (["run", "t5", "--topology", "v5p:2x2x1", "--slices", "0", "--zone", "z", "--", *TRAIN], "slices=0"),
    "a name": (
        ["run", "T5_11b", "--topology", "v5p:2x2x1", "--zone", "z", "--", *TRAIN],
        "name=T5_11b is not a valid name",
    ),
    "spot and reserved": ([*RUN[:7], "--reserved", *RUN[7:]], "--spot and a reservation are two ways"),
    "two reservations": (
        ["run", "t5", "--topology", "v5p:2x2x1", "--zone", "z", "--reserved", "--reservation", "r", "--", *TRAIN],
        "--reserved takes any reservation and --reservation one",
    ),
    "unknown way of ssh": (["log", "t5", "--zone", "z", "--ssh", "tor"], "--ssh"),
    "no zone": (["delete", "t5"], "--zone"),
    "no verb": ([], "required"),
    "train behind delete": (["delete", "t5", "--zone", "z", "--", *TRAIN], "only run trains"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(tpu_vm, stand_ins, capsys, name):
    stand_ins.add("gcloud")
    arguments, expected = BAD[name]
    assert tpu_vm.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("tpu_vm: ")
    assert expected in err
    assert err.count("\n") == 1
    assert stand_ins.calls == [], "no call reaches the cloud"


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("log", "--node=0 --worker=0 --command=t5x_lite/launch/tpu_vm_host.sh follow"),
        ("stop", "--node=all --worker=all --command=sudo systemctl disable --quiet t5x_lite && sudo systemctl stop"),
        ("delete", "delete t5 --force"),
    ],
)
def test_other_verbs_are_one_command_each(tpu_vm, stand_ins, capsys, verb, expected):
    stand_ins.add("gcloud", does="sys.exit(3)")
    assert tpu_vm.main([verb, "t5", "--zone", "z", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert tpu_vm.main([verb, "t5", "--zone", "z"]) == 1
    assert "ended with status 3" in capsys.readouterr().err
    [call] = stand_ins.calls
    assert shlex.split(printed) == call
    assert expected in " ".join(call)


def test_without_gcloud(tpu_vm, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tpu_vm.main(["delete", "t5", "--zone", "z"]) == 2
    assert "gcloud is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["gs://bucket/a", "/mnt/shared/a"])
def test_workdirs_that_outlive_the_machines(tpu_vm, folder):
    train = [TRAIN[0], "--steps", "3"]
    assert tpu_vm.check_train([*train, f"--workdir={folder}"]) is None
    with pytest.raises(tpu_vm.Refusal, match="workdir"):
        tpu_vm.check_train([*train, "--workdir=runs/a"])


def test_the_checkout_is_what_git_knows_or_does_not_ignore(tpu_vm, tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    (checkout / "launch").mkdir(parents=True)
    files = {".gitignore": "/runs/\n", "a.py": "1", "launch/b.sh": "2", "runs/c": "3", "gone.py": "4", "new.py": "5"}
    for name, text in files.items():
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(text)
    (checkout / "launch/b.sh").chmod(0o755)
    subprocess.run(["git", "init", "-q", checkout], check=True)
    subprocess.run(["git", "-C", checkout, "add", "a.py", "gone.py", "launch"], check=True)
    (checkout / "gone.py").unlink()
    monkeypatch.setattr(tpu_vm, "CHECKOUT", checkout)
    tpu_vm.pack(tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getnames() == [".gitignore", "a.py", "launch/b.sh", "new.py"]
        assert tar.getmember("launch/b.sh").mode & 0o111
    monkeypatch.setattr(tpu_vm, "CHECKOUT", tmp_path)
    with pytest.raises(tpu_vm.Refusal, match="not a git checkout"):
        tpu_vm.pack(tmp_path / "b.tar.gz")


@pytest.mark.skipif(not shutil.which("gcloud"), reason="the Google Cloud CLI is not installed")
def test_gcloud_knows_the_commands_and_their_flags(tpu_vm, tmp_path, capsys):
    """gcloud checks them itself, without an account or a network."""
    owned = [word for pair in OWNED.items() for word in pair] + ["--data-disk", DISK, "--internal-ips"]
    ways = (
        RUN,
        [*RUN[:6], "--slices", "2", "--project", "p", *RUN[6:]],
        [*RUN[:6], *owned, "--reserved", *RUN[7:]],
        [*RUN[:6], *owned, "--max-run-duration", "7d", "--reservation", "r", "--ssh", "internal", *RUN[7:]],
        [*RUN[:6], "--gcloud=--provisioning-model=flex-start", "--max-run-duration", "7d", *RUN[7:]],
    )
    for arguments in ways:
        options, train = arguments[: arguments.index("--")], arguments[arguments.index("--") :]
        assert tpu_vm.main([*options, "--dry-run", *train]) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("gcloud ")]
    assert len(printed) == len(ways) * 8
    commands = list(dict.fromkeys(printed))  # it reads each once
    (tmp_path / "commands.json").write_text(json.dumps([{"command_string": command} for command in commands]))
    environment = os.environ | {"CLOUDSDK_CONFIG": str(tmp_path), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    lint = ["gcloud", "meta", "lint-gcloud-commands", f"--commands-file={tmp_path / 'commands.json'}"]
    result = subprocess.run(lint, env=environment, capture_output=True, text=True)
    verdicts = json.loads(result.stdout)
    assert len(verdicts) == len(commands)
    assert [verdict["error_message"] for verdict in verdicts if not verdict["success"]] == []
