"""A run of a configuration whose workers connect: what its server tells them, and what they make of it."""

import functools
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import sgdlab
from sgdlab import user_files
from sgdlab.errors import UsageError
from sgdlab.live import environment, recording
from sgdlab.live.gradients import Computer
from sgdlab.live.work import Work
from sgdlab.report.words import listed
from sgdlab.runs import digests, live
from sgdlab.runs.experiment import resolve

_ROUNDING = "cpus"
"""Version that alone may differ: large products and sums are then the same to rounding."""


def told(job: live.Job, gpus_per_worker: float | None) -> dict[str, Any]:
    """Return what workers are told of a run: all that they need, and what must be the same for them, as JSON."""
    return {
        "argument": job.source.argument,
        "gpus_per_worker": gpus_per_worker,
        "settings": environment.settings(),
        "versions": recording.versions(),
        "code": _code() | _parts(job.header["code"]),
    }


def maker(say: Callable[[str], None]) -> Callable[[Mapping[str, Any]], Computer]:
    """Return what makes the gradients of a worker of what a server has said to it; they are as on its own machine.

    Raises:
      UsageError: (what is returned does) where versions, code or files differ from those of the server.
    """
    made = functools.lru_cache(maxsize=1)(_made)  # for who comes back to the same run

    def make(welcome: Mapping[str, Any]) -> Computer:
        work = made(json.dumps(welcome["work"]), say)
        say(f"Worker {welcome['worker']} of {welcome['workers']} at most")
        return Computer({}, welcome["answer"], welcome["worker"], work)

    return make


def _made(text: str, say: Callable[[str], None]) -> Work:
    of = json.loads(text)
    environment.for_joined(of["settings"], of["gpus_per_worker"])
    ours, theirs = recording.versions(), dict(of["versions"])
    if ours[_ROUNDING] != theirs.get(_ROUNDING):
        say(
            f"This process may use {ours[_ROUNDING]} CPUs, the server {theirs.get(_ROUNDING)}: what is computed of "
            "large batches is the same to rounding"
        )
        theirs[_ROUNDING] = ours[_ROUNDING]
    _check("", ours, theirs)
    code = _code()
    _check("the code of ", code, {"sgdlab": of["code"]["sgdlab"]})  # before it is used
    for name, file in of["argument"]["modules"].items():
        try:
            user_files.import_or_execute(name, file)
        except FileNotFoundError as error:
            raise UsageError(
                f"{file} of the server's --parts must be on this machine too: put it there, or give --parts with where "
                f"{pathlib.Path(file).name} is here"
            ) from error
    experiment = resolve(live.config_of(of["argument"]["config"]))
    _check("the code or the files of ", code | _parts(digests.of_run(experiment)), of["code"])
    return live.work(of["argument"])


def _code() -> dict[str, str]:
    """Return the digest of this package, all of whose files are read."""
    return {"sgdlab": digests.of_source(sgdlab.__file__)}


def _parts(digests_of: Mapping[str, str]) -> dict[str, str]:
    """Return digests of a run's parts by the names of their flags."""
    return {f"--config.{name}": each for name, each in digests_of.items()}


def _check(what: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    differ = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
    if differ:
        said = [f"{what}{name} is {ours.get(name)} here and {theirs.get(name)} on the server" for name in differ]
        raise UsageError(f"{listed(said, 3)}: both sides must have the same")
