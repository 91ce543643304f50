"""Private interfaces of JAX and Ray are used in one module each, which names the version where one is missing."""

import importlib
import pathlib
import re
import sys
import types

import jax
import pytest

import sgdlab
from sgdlab.errors import UsageError
from sgdlab.hosts import jax_private
from sgdlab.live import ray_private

PACKAGE = pathlib.Path(sgdlab.__file__).parent


def modules_with(pattern):
    """The modules of sgdlab in which a pattern is found."""
    found = (path for path in PACKAGE.rglob("*.py") if re.search(pattern, path.read_text(encoding="utf-8")))
    return {str(path.relative_to(PACKAGE)) for path in found}


def test_each_is_in_one_module():
    assert modules_with(r"jax\._src|jaxlib\._|jax\.lib\b") == {"hosts/jax_private.py"}
    assert modules_with(r"ray\._private|ray\._raylet|ray\.scripts") == {"live/ray_private.py"}


def test_the_versions_are_those_that_are_installed():
    setup = (PACKAGE.parent / "setup.py").read_text(encoding="utf-8")
    for name, module in (("jax", jax_private), ("ray", ray_private)):
        ((least, before),) = re.findall(rf'"{name}>=([\d.]+),<([\d.]+)"', setup)
        for bound, known in ((least, module.FIRST), (before, module.BEFORE)):
            assert tuple(map(int, bound.split("."))) == known


def test_what_jax_has_is_found():
    assert jax_private.uses_devices() in (True, False)
    assert callable(jax_private.clusters().auto_detect_unset_distributed_params)
    assert jax_private.coordination_client() is None  # nobody is connected


@pytest.mark.parametrize("version", ["0.9.2", "0.12.0", "1.0"])
def test_an_unknown_version_of_jax_is_named(monkeypatch, version):
    monkeypatch.setattr(jax, "__version__", version)
    with pytest.raises(UsageError, match=rf"from 0\.10 on, before 0\.12, not {version}$"):
        jax_private.clusters()


def test_what_jax_lacks_is_named(monkeypatch):
    monkeypatch.delattr(importlib.import_module("jax._src.clusters"), "ClusterEnv")
    with pytest.raises(
        UsageError, match=rf"needs jax\._src\.clusters\.ClusterEnv, which JAX {jax.__version__} does not"
    ):
        jax_private.clusters()


def test_what_ray_lacks_is_named(monkeypatch):
    fake = types.ModuleType("ray")
    fake.__version__ = "2.99.1"
    fake._private = types.SimpleNamespace(worker=types.SimpleNamespace())
    ray_private.check(fake)
    for name, module in (("ray", fake), ("ray._private", types.ModuleType("ray._private"))):
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ValueError, match=r"_worker_logs_enabled, which Ray 2\.99\.1 does not have"):
        ray_private.silence(fake)
    with pytest.raises(ValueError, match=r"ENABLE_RAY_CLUSTER, which Ray 2\.99\.1 does not have"):
        ray_private.may_open_ports(fake)


@pytest.mark.parametrize(
    ("code", "errors", "answer"), [(0, "", False), (1, "ray.exceptions.AuthenticationError: ...", True), (1, "?", None)]
)
def test_a_cluster_is_asked_for_its_token_by_a_process_without_one(monkeypatch, code, errors, answer):
    """The command is a stand-in that fails if it is given a token."""
    program = f"import os, sys; sys.stderr.write({errors!r}); sys.exit(7 if 'RAY_AUTH_TOKEN' in os.environ else {code})"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    real = ray_private.subprocess.run
    asked = []

    def run(command, **given):
        asked.append(command)
        return real([sys.executable, "-c", program], **given)

    monkeypatch.setattr(ray_private.subprocess, "run", run)
    ray = types.SimpleNamespace(__version__="2.60.0")
    if answer is None:
        with pytest.raises(ValueError, match=r"needs `ray health-check` as it was, which Ray 2\.60\.0"):
            ray_private.asks_for_token(ray, "10.0.0.1:6379")
    else:
        assert ray_private.asks_for_token(ray, "10.0.0.1:6379") == answer
    assert asked[0][-2:] == ["--address", "10.0.0.1:6379"]
