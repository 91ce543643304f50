"""Uses what Ray does not promise to keep: all of it is here, and each use names the version of Ray where it fails."""

import importlib
import os
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

FIRST, BEFORE = (2, 60), (3,)
"""The versions of Ray that are let in; it was tried with the first."""
_SECONDS = 60.0
"""Within which a process that asks a cluster whether it wants a token has answered."""
_REFUSED = "AuthenticationError"


def check(ray: ModuleType) -> None:
    """Check that a version of Ray is one whose private interfaces are those that are used here.

    Raises:
      ValueError: where it is older than 2.60, or of a later series than 2.

    Example:
      >>> import types
      >>> check(types.SimpleNamespace(__version__="2.61.0rc1"))
      >>> check(types.SimpleNamespace(__version__="3.0.0"))
      Traceback (most recent call last):
      ...
      ValueError: transport=ray needs Ray from 2.60 on, before 3, not 3.0.0: `pip install 'sgdlab[ray]'` installs one
    """
    if not FIRST <= tuple(map(int, re.findall(r"\d+", ray.__version__)[:2])) < BEFORE:
        raise ValueError(
            f"transport=ray needs Ray from 2.60 on, before 3, not {ray.__version__}: `pip install 'sgdlab[ray]'` "
            "installs one"
        )


def may_open_ports(ray: ModuleType) -> bool:
    """Return False if this process's Ray binds all its ports to loopback, as a variable of the environment has it."""
    try:
        return bool(importlib.import_module("ray._private.ray_constants").ENABLE_RAY_CLUSTER)
    except (ImportError, AttributeError):
        raise _changed(ray, "ray._private.ray_constants.ENABLE_RAY_CLUSTER") from None


def silence(ray: Any) -> None:
    """Let Ray not print a paragraph about each worker that has ended, which it does whatever `log_to_driver` is."""
    if not isinstance(getattr(ray._private.worker, "_worker_logs_enabled", None), bool):
        raise _changed(ray, "ray._private.worker._worker_logs_enabled")
    ray._private.worker._worker_logs_enabled = False


def asks_for_token(ray: ModuleType, address: str) -> bool:
    """Return False if the head of a cluster answers a process that has no token.

    Args:
      ray: the module.
      address: HOST:PORT of the head.

    Raises:
      ValueError: if it cannot be asked.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    # No public API either, but a command that does no more than to connect.
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--skip-version-check"]
    try:
        done = subprocess.run(
            [*command, "--address", address],
            env=environment | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise _changed(ray, f"an answer of `ray health-check` within {_SECONDS:g} s") from None
    if done.returncode and _REFUSED not in done.stderr:
        raise _changed(ray, "`ray health-check` as it was")
    return done.returncode != 0


def _changed(ray: ModuleType, what: str) -> ValueError:
    return ValueError(f"transport=ray needs {what}, which Ray {ray.__version__} does not have; Ray 2.60 has it")
