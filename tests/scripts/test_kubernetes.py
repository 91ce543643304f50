"""`scripts/kubernetes/`: the manifest is of the form that the API has, and its parts agree with each other."""

import pathlib
import re

import pytest
import yaml
from fakes import SCRIPTS

FIELDS = {
    "Service": {"apiVersion", "kind", "metadata", "spec"},
    "Service.spec": {"clusterIP", "publishNotReadyAddresses", "selector"},
    "Job": {"apiVersion", "kind", "metadata", "spec"},
    "Job.spec": {"completionMode", "completions", "parallelism", "backoffLimit", "podFailurePolicy", "template"},
    "Job.spec.podFailurePolicy": {"rules"},
    "Job.spec.podFailurePolicy.rules": {"action", "onExitCodes", "onPodConditions"},
    "Job.spec.podFailurePolicy.rules.onExitCodes": {"containerName", "operator", "values"},
    "Job.spec.podFailurePolicy.rules.onPodConditions": {"type", "status"},
    "Job.spec.template": {"metadata", "spec"},
    "Job.spec.template.spec": {
        "subdomain", "restartPolicy", "terminationGracePeriodSeconds", "containers", "volumes", "nodeSelector",
    },
    "Job.spec.template.spec.containers": {
        "name", "image", "command", "args", "env", "resources", "volumeMounts", "workingDir", "ports",
    },
    "Job.spec.template.spec.containers.env": {"name", "value", "valueFrom"},
    "Job.spec.template.spec.containers.resources": {"limits", "requests"},
    "Job.spec.template.spec.containers.volumeMounts": {"name", "mountPath", "subPath", "readOnly"},
    "Job.spec.template.spec.volumes": {"name", "persistentVolumeClaim", "emptyDir"},
    "Job.spec.template.spec.volumes.persistentVolumeClaim": {"claimName", "readOnly"},
    "Job.spec.template.spec.volumes.emptyDir": {"medium", "sizeLimit"},
}  # fmt: skip
"""Fields of the API (v1, batch/v1), as far as they may be used here."""


@pytest.fixture(name="manifest", scope="module")
def documents():
    found = list(yaml.safe_load_all((SCRIPTS / "kubernetes/hosts.yaml").read_text()))
    return {document["kind"]: document for document in found}


def check_fields(value, name):
    """Every object whose fields are known has no other ones."""
    if isinstance(value, list):
        for item in value:
            check_fields(item, name)
    elif isinstance(value, dict):
        if name in FIELDS:
            assert set(value) <= FIELDS[name], name
        for key, item in value.items():
            check_fields(item, f"{name}.{key}")


def container(manifest):
    (found,) = manifest["Job"]["spec"]["template"]["spec"]["containers"]
    return found


def test_fields_are_of_the_api(manifest):
    assert {kind: document["apiVersion"] for kind, document in manifest.items()} == {"Service": "v1", "Job": "batch/v1"}
    for kind, document in manifest.items():
        check_fields(document, kind)


def test_the_first_process_is_found_by_name(manifest):
    """A pod of an indexed job is called JOB-INDEX.SUBDOMAIN, where a headless service of that name selects it."""
    job, service = manifest["Job"], manifest["Service"]
    pod = job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    environment = {entry["name"]: entry["value"] for entry in container(manifest)["env"]}
    address, port = environment["SGDLAB_HOSTS"].split(":")
    assert address == f"{job['metadata']['name']}-0.{pod['subdomain']}"
    assert 1024 < int(port) < 65536


def test_all_hosts_run_at_once_and_know_how_many_they_are(manifest):
    spec = manifest["Job"]["spec"]
    environment = {entry["name"]: entry["value"] for entry in container(manifest)["env"]}
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(environment["SGDLAB_NUM_PROCESSES"])
    assert "--process_id=$(JOB_COMPLETION_INDEX)" in container(manifest)["args"]
    # The API has texts only in the environment and in arguments.
    assert all(isinstance(text, str) for text in [*environment.values(), *container(manifest)["args"]])


def test_what_is_started_again(manifest):
    """The first rule that fits decides; an end that fits none counts towards the limit and is started again."""
    spec = manifest["Job"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # which a failure policy requires
    actions = {}
    for rule in spec["podFailurePolicy"]["rules"]:
        assert ("onExitCodes" in rule) != ("onPodConditions" in rule)
        codes = rule.get("onExitCodes")
        if codes:
            assert codes["containerName"] == container(manifest)["name"]
            assert codes["operator"] == "In"
            assert codes["values"] == sorted(set(codes["values"]))
            actions |= {code: actions.get(code, rule["action"]) for code in codes["values"]}
    assert actions == {1: "FailJob", 2: "FailJob", 75: "Ignore"}
    assert spec["backoffLimit"] >= 5 * spec["completions"]  # a lost host ends all of them, and counts for each


def test_volumes_are_mounted_where_they_are_used(manifest):
    pod = manifest["Job"]["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(manifest)["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    (workdir,) = [word for word in container(manifest)["args"] if word.startswith("--workdir=")]
    assert workdir.removeprefix("--workdir=").startswith(f"{mounts['shared']}/")
    (configuration,) = [word for word in container(manifest)["args"] if word.startswith("--config=")]
    assert (SCRIPTS.parent / configuration.removeprefix("--config=")).exists()


def test_the_image_installs_an_extra_that_there_is():
    text = pathlib.Path(SCRIPTS / "kubernetes/Dockerfile").read_text()
    setup = (SCRIPTS.parent / "setup.py").read_text()
    named = {re.search(r"^ARG EXTRA=(\w+)$", text, re.MULTILINE)[1], *re.findall(r"EXTRA=(\w+), or (\w+)\.", text)[0]}
    assert named == {"gpu", "cuda13", "tpu"}
    assert all(f'"{name}": [' in setup for name in named)
