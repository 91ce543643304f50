"""Workers that others start: the flags by which `sgdlab live` listens for them, and by which it is one of them."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from absl import flags

from sgdlab import runs
from sgdlab.commands import flag_names
from sgdlab.errors import HostLost, UsageError

if TYPE_CHECKING:
    from sgdlab.live.remote import Remote
    from sgdlab.runs.live import Job

UNLISTED = ("certificate", "key", "token_file")

_OF_BOTH = ("certificate", "insecure", "token_file")
_OF_WORKERS = ("join", "parts", "wait_seconds", *_OF_BOTH)
_WAIT_SECONDS = 600.0
"""Seconds that a worker looks for its server where --wait_seconds is not given."""


def define() -> None:
    """Defines them."""
    flags.DEFINE_string("listen", None, "HOST:PORT where workers connect that others start, by --join.")
    flags.DEFINE_string(
        "join", None, "HOST:PORT of a run that listens: be one of its workers, without a configuration."
    )
    flags.DEFINE_string(
        "token_file", None, "A file with the token that workers show; by default it is in SGDLAB_TOKEN."
    )
    flags.DEFINE_string("certificate", None, "PEM file of the server's certificate: workers connect by TLS.")
    flags.DEFINE_string("key", None, "PEM file of the private key of --certificate, for --listen.")


def check() -> None:
    """Refuses flags that do not go together."""
    given, present = flags.FLAGS, _present()
    if given.join is not None:
        others = [f"--{name}" for name in present if name not in _OF_WORKERS]
        others += [f"--{name}" for name, _ in flag_names.pairs(sys.argv[1:]) if name.partition(".")[0] == "config"]
        if others:
            raise UsageError(f"{others[0]} must be left out: a worker learns from the server what it computes")
    elif given.listen is not None:
        for name in ("address", "spares", "transport"):
            if name in present:
                raise UsageError(f"--{name} must be left out beside --listen, whose workers others start")
    else:
        for name in ("certificate", "key", "token_file"):
            if name in present:
                raise UsageError(f"--{name} must be left out without --listen or --join")


def transport(job: "Job", own: dict[str, Any], say: Callable[[str], None]) -> "Remote":
    """Returns the workers that connect; nobody does before the run says so."""
    from sgdlab.live.remote import Remote  # noqa: PLC0415
    from sgdlab.live.settings import Endpoint  # noqa: PLC0415

    given = flags.FLAGS
    with _as_flags("listen"):
        endpoint = Endpoint(given.listen, _token(), given.certificate, given.key, given.insecure)
        own |= {"sent_like": job.gradients.sent, "endpoint": endpoint, "say": say}
        told = runs.joined.told(job, given.gpus_per_worker)
        workers = Remote(job.task.params, job.gradients.aux, work=told, **own)
    say(f"Workers may join: sgdlab live --join={workers.address}")
    return workers


def work() -> None:
    """Computes what a server asks for, until the run has ended.

    Raises:
      UsageError: where the server refuses this worker, or has other versions or other code.
      HostLost: where it is not there, or is lost and does not come back.
    """
    from sgdlab.live.settings import check_address, grpc_or_error, token_of  # noqa: PLC0415
    from sgdlab.live.worker import ComputingWorker  # noqa: PLC0415

    given = flags.FLAGS
    seconds = given.wait_seconds if "wait_seconds" in _present() else _WAIT_SECONDS
    with _as_flags("join"):
        check_address(given.join, certificate=given.certificate, insecure=given.insecure)
        grpc_or_error()
        worker = ComputingWorker(
            runs.joined.maker(lambda line: print(line, flush=True)),
            given.join,
            token_of(_token()),
            given.certificate,
            seconds,
        )
    try:
        with worker:
            worker.run()
    except ConnectionRefusedError as error:
        raise UsageError(f"--join: {error}") from error
    except ConnectionError as error:
        raise HostLost(f"--join: {error}") from error
    print("The run has ended.")


def _present() -> list[str]:
    # Of a configuration the launcher names the file, which a person may have done or not.
    return [flag.name for flag in flag_names.own_flags() if flag.present and flag.name != "config"]


def _token() -> pathlib.Path | None:
    from sgdlab.live.settings import VARIABLE  # noqa: PLC0415 (likewise)

    name = flags.FLAGS.token_file
    if name is None and VARIABLE not in os.environ:
        raise UsageError(f"--token_file must name a file with the token of the workers, or {VARIABLE} must hold it")
    return None if name is None else pathlib.Path(name)


@contextlib.contextmanager
def _as_flags(where: str) -> Iterator[None]:
    """Re-raises the mistakes of a block, which name arguments, with the flags that set these."""
    try:
        yield
    except ValueError as error:
        text = str(error).replace("insecure=True", "--insecure")
        for argument, flag in (("address=", where), ("token=", "token_file"), ("certificate=", ""), ("key=", "")):
            if text.startswith(argument):
                text = f"--{flag or argument[:-1]}={text.removeprefix(argument)}"
        raise UsageError(text) from error
