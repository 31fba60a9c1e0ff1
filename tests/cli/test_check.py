"""What would stop a run on machines that are paid for; a folder stands in for the bucket."""

import re
import shutil
import time
from dataclasses import replace

import pytest

from t5x_lite.cli.commands import check as command
from t5x_lite.data import Tfds
from t5x_lite.errors import InputError
from t5x_lite.parallel import MeshShape

from ..disk_bucket import disk_bucket


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """The folder that gs://bucket stands for, in which `readonly` may not be written to."""
    folder = tmp_path_factory.mktemp("bucket")
    with disk_bucket(folder):
        yield folder


@pytest.fixture
def config(experiments, write_config, tmp_path):
    return write_config(experiments["bert"], tmp_path / "bert.py")


FIT = ("--topology", "v5e:2x2")


def test_a_run_that_can_begin(run, config, bucket, tmp_path):
    data = tmp_path / "data"
    status, _, err = run("prepare", config, "--out", data, "--workers", 1)
    assert (status, err) == (0, "")
    options = ("--workdir", "gs://bucket/runs/a", "--data.prepared", data, "--mesh.fsdp", 2)
    status, out, err = run("check", config, *FIT, *options)
    assert (status, err) == (0, "")
    whats, answers = zip(*(line.split(": ", 1) for line in out.splitlines()), strict=True)
    assert whats == ("config", "mesh", "workdir", "data")
    assert answers[0].startswith("BertConfig of ")
    assert answers[0].endswith("2 steps of 8 rows")
    assert answers[1:3] == (
        "data 2, fsdp 2, sequence 1, tensor 1 over 4 devices",
        "gs://bucket/runs/a can be written to",
    )
    assert re.fullmatch(rf"{data} has [1-9]\d* rows to train on", answers[3])
    assert not any(path.is_file() for path in bucket.rglob("*")), "what it writes, it removes"


def test_every_problem_is_one_sentence(run, config, bucket):
    options = ("--workdir", "gs://bucket/readonly", "--data.prepared", "gs://bucket/none", "--mesh.fsdp", 3)
    status, out, err = run("check", config, *FIT, *options)
    assert status == 2
    assert re.fullmatch("config: .*\n", out)
    mesh, workdir, data = err.splitlines()
    assert mesh.startswith("t5x-lite: mesh: mesh data=-1 fsdp=3 sequence=1 tensor=1 does not fill 4 devices")
    assert workdir.startswith("t5x-lite: workdir: workdir=gs://bucket/readonly cannot be written to (the caller does")
    assert data.startswith("t5x-lite: data: data.prepared=gs://bucket/none has no rows of this data")
    assert "prepare CONFIG --out gs://bucket/none" in data


def test_a_workdir_with_another_run_is_refused(run, config, make_run, bucket):
    shutil.copytree(make_run("bert"), bucket / "a")
    (bucket / "a/store.json").write_text("{}")
    status, _, err = run("check", config, *FIT, "--workdir", "gs://bucket/a", "--seed", 8)
    assert (status, err.count("\n")) == (2, 1)
    assert "workdir=gs://bucket/a holds a run that differs in seed (0 there, 8 here)" in err
    assert run("check", config, *FIT, "--workdir", "gs://bucket/a")[0] == 0, "the same run goes on"


def test_what_hosts_have_cannot_be_seen_and_sources_are_read(run, config, bucket):
    status, out, err = run("check", config, *FIT, "--workdir", "/mnt/shared/a")
    assert (status, err) == (0, "")
    assert "workdir: /mnt/shared/a is a folder of the hosts', which cannot be seen from here" in out
    assert "data: TextFiles can be read; process 0 tokenizes all of it" in out
    status, out, _ = run("check", config, *FIT, "--workdir", "/mnt/a", "--data.prepared", "/mnt/shared/data")
    assert status == 0
    assert "data: /mnt/shared/data is a folder of the hosts', which cannot be seen from here" in out
    status, _, err = run("check", config, *FIT, "--workdir", "/mnt/shared/a", "--text", "/absent/text.txt")
    assert status == 2
    assert err.startswith("t5x-lite: data: ") and err.count("\n") == 1 and "/absent/text.txt" in err


def test_a_dataset_that_every_host_would_prepare_is_refused(run, experiments, write_config, tmp_path, monkeypatch):
    monkeypatch.setattr(Tfds, "_builder", lambda self: pytest.fail("nothing is downloaded"))
    bert = experiments["bert"]
    config = write_config(replace(bert, data=replace(bert.data, source=Tfds("c4/en"))), tmp_path / "c4.py")
    status, _, err = run("check", config, *FIT, "--workdir", "/mnt/a")
    assert status == 2
    assert "every host would prepare the dataset 'c4/en' for itself; run `t5x-lite prepare" in err


def test_a_bucket_that_does_not_answer(run, config, bucket, monkeypatch):
    monkeypatch.setattr(command, "_LIMIT", 0.5)
    monkeypatch.setattr(command, "open_workdir", lambda workdir, experiment: time.sleep(5))
    status, _, err = run("check", config, *FIT, "--workdir", "gs://bucket/a")
    assert status == 2
    assert err == "t5x-lite: workdir: there is no answer within 0 seconds; see to the network, and log in\n"


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("v5p:4x4x4", 64),
        ("tpu7x:2x2x1", 8),
        ("v5p-128", 64),
        ("tpu-v4-8", 4),
        ("v5litepod-16", 16),
        ("v6e-256", 256),
    ],
)
def test_devices_by_topology_or_accelerator_type(name, devices):
    assert command.num_devices(name) == devices


@pytest.mark.parametrize("name", ["v5p", "v9-8", "v5p-1", "v5p-", "A100:8", "v5p:3x3x3", ""])
def test_other_names_are_refused(name):
    with pytest.raises(InputError, match="topology="):
        command.num_devices(name)


def test_slices_share_out_the_data_axis_alone(experiments):
    bert = replace(experiments["bert"], batch_size=16)
    assert command.check_fit(replace(bert, mesh=MeshShape(data=-1, fsdp=4)), 4, 2).startswith("data 2, fsdp 4")
    with pytest.raises(InputError, match="mesh.data=1 cannot go across 2 slices"):
        command.check_fit(replace(bert, mesh=MeshShape(data=1, fsdp=8)), 4, 2)
    with pytest.raises(InputError, match="batch_size=16 .* is not divided by the 32 devices"):
        command.check_fit(bert, 16, 2)
    assert command.check_fit(replace(bert, remat="offload"), 4, 1).startswith("data 4")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "--topology is missing"),
        (("--topology", "v9"), "topology='v9' is not known"),
        (("--topology", "v5e:2x2", "--slices", "0"), "slices=0 is too small"),
    ],
)
def test_bad_input_is_one_sentence(run, config, options, says):
    status, _, err = run("check", config, *options)
    assert (status, err.count("\n")) == (2, 1)
    assert says in err
