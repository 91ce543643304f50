"""What a run was made with: version, jax, device and, in a git checkout, the commit."""

import functools
import pathlib
import subprocess

import jax

import sgdlab


@functools.cache
def made_with() -> dict[str, str | None]:
    """Version of this package, of jax, kind of device, and the checkout's commit (with "+" where files are changed).

    Example:
      >>> sorted(made_with())
      ['commit', 'device', 'jax', 'version']
    """
    return {
        "version": sgdlab.__version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "commit": _commit(),
    }


def _commit() -> str | None:
    root = pathlib.Path(sgdlab.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        commit, status = (
            subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, timeout=10, check=True)
            for command in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("+" if status.stdout.strip() else "")
