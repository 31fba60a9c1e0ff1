"""The JobSet: its fields against those of the APIs, and the action after each way a pod can end."""

import re
import shlex

import pytest
import yaml

TRAIN = ["configs/t5_base.py", "--workdir", "gs://bucket/run"]
CALL = ["t5", "--topology", "v5p:4x4x4", "--image", "eu-docker.pkg.dev/p/r/t5x_lite:1"]

# The part of jobset.x-k8s.io/v1alpha2, batch/v1 and core/v1 that is used. A schema is a type, the allowed
# words, a list of one schema, or {field: schema} with "!" after required fields.
STRINGS = {"*": str}
# https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral
FUSE = {
    "driver!": ("gcsfuse.csi.storage.gke.io",),
    "readOnly": bool,
    "volumeAttributes!": {"bucketName!": str, "mountOptions": str},
}
SCHEMA = {
    "apiVersion!": ("jobset.x-k8s.io/v1alpha2",),
    "kind!": ("JobSet",),
    "metadata!": {"name!": str, "namespace": str, "labels": STRINGS, "annotations": STRINGS},
    "spec!": {
        "failurePolicy": {
            "maxRestarts": int,
            "rules": [
                {
                    "name!": str,
                    "action!": ("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
                    "onJobFailureReasons": [("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy")],
                    "onJobFailureMessagePatterns": [str],
                }
            ],
        },
        "replicatedJobs!": [
            {
                "name!": str,
                "replicas": int,
                "template!": {
                    "spec!": {
                        "completionMode": ("Indexed", "NonIndexed"),
                        "parallelism": int,
                        "completions": int,
                        "backoffLimit": int,
                        "podFailurePolicy": {
                            "rules!": [
                                {
                                    "action!": ("FailJob", "Ignore", "Count"),
                                    "onExitCodes": {
                                        "containerName": str,
                                        "operator!": ("In", "NotIn"),
                                        "values!": [int],
                                    },
                                    "onPodConditions": [{"type!": str, "status!": ("True", "False", "Unknown")}],
                                }
                            ]
                        },
                        "template!": {
                            "metadata": {"annotations": STRINGS},
                            "spec!": {
                                "restartPolicy": ("Never",),  # podFailurePolicy allows no other
                                "serviceAccountName": str,
                                "terminationGracePeriodSeconds": int,
                                "nodeSelector": STRINGS,
                                "tolerations": [
                                    {
                                        "key": str,
                                        "operator": ("Equal", "Exists"),
                                        "value": str,
                                        "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
                                    }
                                ],
                                "containers!": [
                                    {
                                        "name!": str,
                                        "image": str,
                                        "args": [str],
                                        "env": [{"name!": str, "value": str}],
                                        "ports": [{"containerPort!": int}],
                                        "resources": {"limits": {"google.com/tpu": int}},
                                        "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}],
                                    }
                                ],
                                "volumes": [{"name!": str, "csi": FUSE}],
                            },
                        },
                    }
                },
            }
        ],
    },
}


def faults(value, schema, path="") -> list[str]:
    """Where a document departs from a schema."""
    if isinstance(schema, type):
        return [] if type(value) is schema else [f"{path}: {value!r} is not a {schema.__name__}"]
    if isinstance(schema, tuple):
        return [] if value in schema else [f"{path}: {value!r} is not one of {schema}"]
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [f"{path}: {value!r} is not a list of something"]
        return [fault for n, item in enumerate(value) for fault in faults(item, schema[0], f"{path}[{n}]")]
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is not a mapping"]
    fields = {name.rstrip("!"): of for name, of in schema.items()}
    missing = [f"{path}.{name[:-1]} is missing" for name in schema if name.endswith("!") and name[:-1] not in value]
    unknown = [f"{path}.{name} is unknown" for name in value if name not in fields and "*" not in fields]
    known = {name: fields.get(name, fields.get("*")) for name in value if name in fields or "*" in fields}
    return (
        missing + unknown + [fault for name, of in known.items() for fault in faults(value[name], of, f"{path}.{name}")]
    )


@pytest.fixture
def gke_jobset(script, monkeypatch):
    module = script("gke_jobset")
    monkeypatch.setattr(module, "check_run", lambda command: None)
    return module


@pytest.fixture
def jobset(gke_jobset, capsys):
    """`jobset(*options)`: the document that the dry run prints."""

    def jobset(*options, call=CALL, train=TRAIN):
        assert gke_jobset.main([*call, *options, "--dry-run", "--", *train]) == 0
        check, first, *document, last = capsys.readouterr().out.splitlines()
        assert check.startswith("python -m t5x_lite check ") and check.endswith(" &&")
        assert first == "kubectl apply --filename=- <<'JOBSET'"
        assert last == "JOBSET"
        return yaml.safe_load("\n".join(document))

    return jobset


def job_of(document):
    return document["spec"]["replicatedJobs"][0]["template"]["spec"]


def pod_of(document):
    return job_of(document)["template"]["spec"]


OWNED = ["--queue", "tpus", "--priority", "high", "--label", "team=nlp", "--namespace", "ml", "--reservation", "mine"]
MOUNTS = ["--mount", "gs://my-bucket=/data", "--mount", "other_b.x=/out:rw"]


@pytest.mark.parametrize(
    "options", [[], ["--spot"], ["--slices", "4", "--service-account", "trainer"], OWNED, MOUNTS, [*OWNED, *MOUNTS]]
)
def test_every_field_is_one_that_the_apis_have(jobset, options):
    assert faults(jobset(*options), SCHEMA) == []


def test_the_schema_finds_faults(jobset):
    document = jobset()
    job_of(document)["completions"] = "16"
    pod_of(document)["nodeSelectors"] = pod_of(document).pop("nodeSelector")
    del document["metadata"]["name"]
    assert len(faults(document, SCHEMA)) == 3


@pytest.mark.parametrize(
    ("topology", "options", "label", "shape", "hosts", "chips"),
    [
        ("v4:2x2x4", [], "tpu-v4-podslice", "2x2x4", 4, 4),
        ("v5p:2x2x1", [], "tpu-v5p-slice", "2x2x1", 1, 4),
        ("v5p:8x8x16", [], "tpu-v5p-slice", "8x8x16", 256, 4),
        ("v5e:1x1", [], "tpu-v5-lite-podslice", "1x1", 1, 1),
        ("v5e:16x16", [], "tpu-v5-lite-podslice", "16x16", 64, 4),
        ("v6e:2x4", [], "tpu-v6e-slice", "2x4", 2, 4),
        ("v6e:2x4", ["--chips-per-host", "8"], "tpu-v6e-slice", "2x4", 1, 8),
        ("tpu7x:4x4x4", [], "tpu7x", "4x4x4", 16, 4),
    ],
)
def test_a_pod_a_host_of_the_topology(jobset, topology, options, label, shape, hosts, chips):
    document = jobset(*options, call=["t5", "--topology", topology, "--image", "i"])
    job, pod = job_of(document), pod_of(document)
    assert (job["parallelism"], job["completions"], job["completionMode"]) == (hosts, hosts, "Indexed")
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": chips}
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": label,
        "cloud.google.com/gke-tpu-topology": shape,
    }
    assert "tolerations" not in pod
    assert {"name": "T5X_LITE_SUPERVISED", "value": "1"} in pod["containers"][0]["env"]


def test_spot_slices_and_arguments(jobset):
    train = [TRAIN[0], "--workdir", "gs://b/c", "--data.source.name", 'it\'s "$HOME" # \\']
    document = jobset("--spot", "--slices", "3", train=train)
    assert document["spec"]["replicatedJobs"][0]["replicas"] == 3
    pod = pod_of(document)
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert pod["tolerations"][0]["key"] == "cloud.google.com/gke-spot"
    assert pod["containers"][0]["args"] == ["train", *train]
    assert pod["containers"][0]["image"] == CALL[-1]


def test_a_queue_of_kueue_a_namespace_and_a_reservation(jobset):
    document = jobset(*OWNED)
    assert document["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "tpus",
        "kueue.x-k8s.io/priority-class": "high",
        "team": "nlp",
    }
    assert document["metadata"]["namespace"] == "ml"
    assert pod_of(document)["nodeSelector"]["cloud.google.com/reservation-name"] == "mine"
    plain = jobset()
    assert not {"labels", "namespace"} & set(plain["metadata"])
    assert "cloud.google.com/reservation-name" not in pod_of(plain)["nodeSelector"]


def test_buckets_are_folders_of_the_container(jobset):
    document = jobset(*MOUNTS)
    pod = pod_of(document)
    assert job_of(document)["template"]["metadata"] == {"annotations": {"gke-gcsfuse/volumes": "true"}}
    mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}
    buckets = {one["csi"]["volumeAttributes"]["bucketName"]: one for one in pod["volumes"]}
    for bucket, path, read_only in (("my-bucket", "/data", True), ("other_b.x", "/out", False)):
        name = buckets[bucket]["name"]
        assert re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
        assert mounts[name] == {"name": name, "mountPath": path, "readOnly": read_only}
        assert buckets[bucket]["csi"]["readOnly"] is read_only
    plain = jobset()
    assert "metadata" not in job_of(plain)["template"]
    assert "volumes" not in pod_of(plain)
    assert "volumeMounts" not in pod_of(plain)["containers"][0]


def test_kubectl_is_called_after_a_check_that_passes(gke_jobset, stand_ins, monkeypatch, capsys):
    stand_ins.add("kubectl", reads=True)
    checked = []

    def refuse(command):
        checked.append(command)
        raise gke_jobset.Refusal("the data is not there")

    monkeypatch.setattr(gke_jobset, "check_run", refuse)
    assert gke_jobset.main([*CALL, "--slices", "2", "--", *TRAIN]) == 2
    assert stand_ins.calls == []
    assert capsys.readouterr().err == "gke_jobset: the data is not there\n"
    options = ["--topology", "v5p:4x4x4", "--slices", "2", *TRAIN[1:]]
    assert checked == [["-m", "t5x_lite", "check", TRAIN[0], *options]]
    assert gke_jobset.main([*CALL, "--no-check", "--", *TRAIN]) == 0
    assert stand_ins.calls[0] == ["kubectl", "apply", "--filename=-"]
    assert len(checked) == 1


def action_after(document, code=None, disrupted=False):
    """The action of the Job's and the JobSet's controllers after a pod ended so: the first matching rule of either."""
    container, message = "train", None
    for index, rule in enumerate(job_of(document)["podFailurePolicy"]["rules"]):
        codes = rule.get("onExitCodes")
        if codes and code in codes["values"] and codes["containerName"] == container:
            ended = f"Container {container} for pod a/b-0 failed with exit code {code}"
            message = f"{ended} matching FailJob rule at index {index}"
            break
        conditions = [condition["type"] for condition in rule.get("onPodConditions", [])]
        if disrupted and "DisruptionTarget" in conditions:
            message = f"Pod a/b-0 has condition DisruptionTarget matching FailJob rule at index {index}"
            break
    assert job_of(document)["backoffLimit"] == 0
    reason = "PodFailurePolicy" if message else "BackoffLimitExceeded"
    message = message or "Job has reached the specified backoff limit"
    for rule in document["spec"]["failurePolicy"]["rules"]:
        patterns = rule.get("onJobFailureMessagePatterns", [""])
        if reason in rule["onJobFailureReasons"] and any(re.search(pattern, message) for pattern in patterns):
            return rule["action"]
    return "RestartJobSet"


def test_preemptions_do_not_count_bad_input_is_not_tried_again_crashes_three_times(jobset):
    document = jobset()
    assert action_after(document, code=75) == "RestartJobSetAndIgnoreMaxRestarts"
    assert action_after(document, code=143, disrupted=True) == "RestartJobSetAndIgnoreMaxRestarts"
    assert action_after(document, code=2) == "FailJobSet"
    for code in (1, 12, 22, 134, 137):
        assert action_after(document, code=code) == "RestartJobSet"
    assert document["spec"]["failurePolicy"]["maxRestarts"] == 3


def test_kubectl_gets_what_the_dry_run_prints(gke_jobset, jobset, stand_ins):
    printed = jobset()
    stand_ins.add("kubectl", does="sys.exit(5)", reads=True)
    assert gke_jobset.main([*CALL, "--", *TRAIN]) == 5, "its status is kubectl's"
    call, (_, document) = stand_ins.calls
    assert shlex.join(call) == "kubectl apply --filename=-"
    assert yaml.safe_load(document) == printed


BAD = {
    "no config": (CALL, "the config is missing"),
    "workdir in the pod": ([*CALL, "--", TRAIN[0]], "workdir=runs/... is lost with the pods"),
    "workdir on the node": ([*CALL, "--", TRAIN[0], "--workdir=/tmp/a"], "workdir=/tmp/a is lost with the pods"),
    "unknown generation": (["t5", "--topology", "v3:2x2", "--image", "i", "--", *TRAIN], "choose one of v4, v5e"),
    "no shape": (["t5", "--topology", "v5p", "--image", "i", "--", *TRAIN], "topology=v5p is not valid"),
    "odd shape": (["t5", "--topology", "v5p:4x0x4", "--image", "i", "--", *TRAIN], "topology=v5p:4x0x4 is not valid"),
    "hosts": ([*CALL, "--chips-per-host", "5", "--", *TRAIN], "chips_per_host=5 does not divide the 64 chips"),
    "no hosts": ([*CALL, "--chips-per-host", "0", "--", *TRAIN], "chips_per_host=0"),
    "no slices": ([*CALL, "--slices", "0", "--", *TRAIN], "slices=0"),
    "a name": (["T5_11b", *CALL[1:], "--", *TRAIN], "name=T5_11b is not a valid name"),
    "two ways": ([*CALL, "--spot", "--reservation", "r", "--", *TRAIN], "--spot and --reservation are two ways"),
    "a priority without a queue": ([*CALL, "--priority", "high", "--", *TRAIN], "priority=high is of a queue of Kueue"),
    "a label": ([*CALL, "--label", "team", "--", *TRAIN], "label=team is not a label; write KEY=VALUE"),
    "a mount": ([*CALL, "--mount", "my-bucket", "--", *TRAIN], "mount=my-bucket is not a mount; write BUCKET=/PATH"),
    "a relative mount": ([*CALL, "--mount", "my-bucket=data", "--", *TRAIN], "mount=my-bucket=data is not a mount"),
    "no image": (["t5", "--topology", "v5p:4x4x4", "--", *TRAIN], "--image"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(gke_jobset, stand_ins, capsys, name):
    stand_ins.add("kubectl")
    arguments, expected = BAD[name]
    assert gke_jobset.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("gke_jobset: ")
    assert expected in err
    assert err.count("\n") == 1
    assert stand_ins.calls == []


def test_without_kubectl(gke_jobset, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gke_jobset.main([*CALL, "--", *TRAIN]) == 2
    assert "kubectl is not installed" in capsys.readouterr().err
