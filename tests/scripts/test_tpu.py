"""`scripts/tpu/slice.sh`: what gcloud is given, and what the hosts of a slice do with it."""

import json
import subprocess
import tarfile

import pytest
from fakes import SCRIPTS, Cluster, answer, until

GCLOUD = """
if "ssh" in arguments:
    (command,) = [argument.removeprefix("--command=") for argument in arguments if argument.startswith("--command=")]
    homes = sorted(pathlib.Path(os.environ["HOMES"]).iterdir())
    own = [{"cwd": home, "env": os.environ | {"HOME": str(home)}} for home in homes]
    hosts = [subprocess.Popen(["bash", "-c", command], **where) for where in own]
    sys.exit(max(host.wait() for host in hosts))
if "scp" in arguments:
    import shutil
    file, (_, name) = arguments[arguments.index("scp") + 1], arguments[arguments.index("scp") + 2].split(":")
    for home in pathlib.Path(os.environ["HOMES"]).iterdir():
        shutil.copy(file, home / name)
"""
COMMAND = """#!/usr/bin/env python3
import json, os, signal, sys, time
os.write(1, (json.dumps([os.getcwd(), *sys.argv[1:]]) + chr(10)).encode())  # hosts share a pipe: one write a line
if "--wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    open("waits", "w").close()
    time.sleep(60)
"""


@pytest.fixture(name="cluster")
def google(tmp_path):
    """Two hosts, whose home directories have what `install` would have put there."""
    cluster = Cluster(tmp_path / "bin")
    cluster.add("gcloud", GCLOUD)
    cluster.add("sudo")
    cluster.homes = [tmp_path / "homes" / name for name in ("host0", "host1")]
    for home in cluster.homes:
        (home / "sgdlab").mkdir(parents=True)
        (home / "venv/bin").mkdir(parents=True)
        (home / "venv/bin/sgdlab").write_text(COMMAND)
        (home / "venv/bin/sgdlab").chmod(0o755)
    cluster.environment |= {"HOMES": str(tmp_path / "homes"), "TPU": "slice", "ZONE": "zone"}
    return cluster


def line(*words):
    return ["bash", SCRIPTS / "tpu" / "slice.sh", *words]


def run(cluster, *words):
    return answer(*line(*words), env=cluster.environment)


def test_create_and_delete(cluster):
    assert run(cluster, "create", "v4-32", "tpu-ubuntu2204-base", "--spot").returncode == 0
    assert run(cluster, "delete").returncode == 0
    vm = ["compute", "tpus", "tpu-vm"]
    assert cluster.calls("gcloud") == [
        [*vm, "create", "slice", "--zone=zone", "--accelerator-type=v4-32", "--version=tpu-ubuntu2204-base", "--spot"],
        [*vm, "delete", "slice", "--zone=zone", "--quiet"],
    ]


@pytest.mark.long("it copies the checkout by processes")
def test_install_copies_the_checkout_to_every_host(cluster):
    cluster.add("python3.11")
    for home in cluster.homes:
        pip = home / "venv/bin/pip"
        pip.write_text('#!/bin/sh\necho "$@" >pip\n')
        pip.chmod(0o755)
    ended = run(cluster, "install")
    assert ended.returncode == 0, ended.stderr
    for home in cluster.homes:
        assert (home / "sgdlab/setup.py").read_text() == (SCRIPTS.parent / "setup.py").read_text()
        assert not (home / "sgdlab/.git").exists()
        assert (home / "pip").read_text().split() == ["install", "-q", "./sgdlab[tpu,experiments]"]
        with tarfile.open(home / "sgdlab.tar.gz") as archive:
            assert not [name for name in archive.getnames() if name.startswith(("./.venv", "./runs", "./build"))]
    assert ["install", "-qq", "-y", "python3.11-venv", "nfs-common"] in [call[1:] for call in cluster.calls("sudo")]


def test_run_on_every_host_keeps_words_whole_and_logs(cluster):
    ended = run(cluster, "run", "sgdlab", "train", "--workdir=/shared/it's $HOME", "--hosts_wait=*")
    assert ended.returncode == 0, ended.stderr
    words = ["train", "--workdir=/shared/it's $HOME", "--hosts_wait=*", "--hosts=auto"]
    expected = [[str(home / "sgdlab"), *words] for home in cluster.homes]
    assert sorted(map(json.loads, ended.stdout.splitlines())) == expected
    assert [json.loads((home / "sgdlab.log").read_text()) for home in cluster.homes] == expected


def test_stop_ends_what_run_started_and_run_has_its_exit_code(cluster):
    with subprocess.Popen(
        line("run", "sgdlab", "--wait"), env=cluster.environment, stdout=subprocess.DEVNULL
    ) as running:
        for home in cluster.homes:
            until((home / "sgdlab/waits").exists)
        assert run(cluster, "stop").returncode == 0
        assert running.wait(timeout=60) == 75


def test_mount_names_the_file_system(cluster):
    cluster.add("mountpoint", "sys.exit(1)")
    assert run(cluster, "mount", "10.0.0.2:/share").returncode == 0
    assert cluster.calls("sudo").count(["mount", "-t", "nfs", "10.0.0.2:/share", "/shared"]) == 2


@pytest.mark.parametrize("words", [(), ("create", "v4-32"), ("run",), ("mount",), ("start",)])
def test_wrong_usage(cluster, words):
    ended = run(cluster, *words)
    assert ended.returncode == 2
    assert "scripts/tpu/slice.sh run sgdlab train" in ended.stderr
    assert cluster.calls("gcloud") == []
