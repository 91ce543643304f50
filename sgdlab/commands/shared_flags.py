"""Flags that several commands share: of traces, of pages that are served, and of runs over many hosts."""

import contextlib
import importlib
import importlib.metadata
import os
import pathlib
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

import sgdlab
from sgdlab import hosts, runs
from sgdlab.commands import flag_names
from sgdlab.errors import UsageError, said_of
from sgdlab.traces.options import SECONDS, Options

if TYPE_CHECKING:
    from jax.sharding import Mesh

READING = ("columns", "skip_bad_rows", "trace_format", "unit", "workers_per_node")
"""Those that tell how a trace is read: --help leaves them to --help=all where a trace is one of several sources."""

TRAINING = ("data.kind", "network.kind", "optimizer.learning_rate")
"""Entries of the configuration that only a training needs, which commands that draw schedules do not show first."""


def define_trace() -> None:
    """Defines them: --trace, --recording, --trace_format, --columns, --unit, --skip_bad_rows, --workers_per_node."""
    flags.DEFINE_string(
        "trace", None, "A file of recorded compute times, or a directory or glob with one file for each worker."
    )
    flags.DEFINE_string("recording", None, "recording.npz of a run of `sgdlab live`, instead of a trace.")
    flags.DEFINE_string("trace_format", None, "Format of the trace; by default it is recognised.")
    flags.DEFINE_list(
        "columns",
        [],
        "Columns of the trace: worker, step and duration in this order, as rank,iteration,time_ms; or by name, as "
        "worker=rank,duration=time_ms,node=host,phase=op; of a table with a column for each worker, workers=rank*.",
    )
    flags.DEFINE_enum("unit", None, list(SECONDS), "Unit of the durations; by default taken from the column's name.")
    flags.DEFINE_bool("skip_bad_rows", False, "Leave out rows that cannot be used, and count them.")
    flags.DEFINE_integer("workers_per_node", None, "Number of consecutive workers that share a machine.", lower_bound=1)


def trace_options() -> Options:
    """Return what the flags of `define_trace` say of how it is read."""
    given = flags.FLAGS
    with said_of("--"):
        return Options(
            format=given.trace_format,
            columns=tuple(given.columns),
            unit=given.unit,
            skip_bad_rows=given.skip_bad_rows,
            workers_per_node=given.workers_per_node,
        )


def trace_path(argv: Sequence[str]) -> str | None:
    """The trace of --trace, or the argument that is no flag; None where --recording is given; one of them must be."""
    given = flags.FLAGS
    named = {f"--trace={given.trace}": given.trace, f"--recording={given.recording}": given.recording}
    named |= {argument: argument for argument in argv[1:]}
    found = [flag for flag, value in named.items() if value is not None]
    if not found:
        raise UsageError(
            "--trace must name a file of recorded times, as in --trace=trace.csv; or --recording a run of `sgdlab "
            "live`, as in --recording=runs/live/recording.npz"
        )
    if len(found) > 1:
        raise UsageError(f"{found[1]} must be left out beside {found[0]}: there must be one trace")
    return None if found[0] == f"--recording={given.recording}" else named[found[0]]


_LAST_PORT = 65535


class _PortParser(flags.ArgumentParser):
    """A port, or nothing: --serve, --serve=8080, --noserve."""

    syntactic_help = f"a port, from 0 (any that is free) to {_LAST_PORT}"

    def flag_type(self) -> str:
        return "port"

    def parse(self, argument: Any) -> int | None:
        if argument in ("true", "false"):
            return 0 if argument == "true" else None
        port = int(argument)
        if not 0 <= port <= _LAST_PORT:
            raise ValueError(f"{port} must be {self.syntactic_help}")
        return port


def define_serve(words: str) -> None:
    """Defines --serve, with the words that --help has."""
    # With a value or without, so it is a switch that has a number.
    flag = flags.Flag(_PortParser(), flags.ArgumentSerializer(), "serve", None, words, boolean=True)
    flags.DEFINE_flag(flag)


def check_serve(argv: Sequence[str]) -> None:
    """Refuses a port that stands apart from the flag."""
    if flags.FLAGS.serve is not None and (apart := [word for word in argv[1:] if word.isdecimal()]):
        raise UsageError(f"--serve {apart[0]} must be one word: --serve={apart[0]}")


OF_HOSTS = (
    "barrier_seconds",
    "coordinator_address",
    "devices",
    "heartbeat_seconds",
    "hosts_secret_file",
    "num_processes",
    "process_id",
    "start_seconds",
)
"""Those beside --hosts, which --help leaves to --help=all."""

_NOT_SHARED = {"config", "hosts", "parts", *OF_HOSTS} - {"devices"}
"""Flags that may differ between the processes of a run; configurations and parts are compared by what they hold."""

_SETTINGS_OF_JAX = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)


def define_hosts() -> None:
    """Defines them; the first five can be set by variables of the environment, such as SGDLAB_HOSTS, too."""
    times = hosts.Timeouts()
    flags.DEFINE_string(
        "hosts",
        None,
        "One run over many processes: none, auto (SLURM, Open MPI, TPU, GKE) or HOST:PORT of process 0.",
    )
    flags.DEFINE_string("coordinator_address", None, "HOST:PORT of process 0: the same as --hosts=HOST:PORT.")
    flags.DEFINE_string(
        "hosts_secret_file", None, "A file with a secret that all processes of the run prove to have when they meet."
    )
    flags.DEFINE_string(
        "num_processes",
        None,
        "Number of processes of the run; detected by --hosts=auto. 2:4: four, or as many as have come after "
        "--start_seconds if they are at least two.",
    )
    flags.DEFINE_integer("process_id", None, "Number of this process, from 0; detected by --hosts=auto.")
    flags.DEFINE_integer(
        "devices", None, "Number of devices that each process uses; by default one of a single process, all of several."
    )
    for name, default, least, words in (
        ("start", times.start, 0.0, "Seconds that processes wait until all have come."),
        ("heartbeat", times.heartbeat, 1.0, "Seconds without a sign of life after which a process is lost."),
        ("barrier", times.barrier, 1.0, "Seconds that processes wait for the last one during a run."),
    ):
        flags.DEFINE_float(f"{name}_seconds", default, words, lower_bound=least)


def mesh() -> "Mesh | None":
    """Connects this process with the others that its flags speak of, and returns the devices to use.

    Returns:
      None for a single device.

    Raises:
      UsageError: where a flag is impossible, or processes do not belong together.
      HostLost: where others do not come.
    """
    given = flags.FLAGS
    secret_file = given.hosts_secret_file or os.environ.get(_variable("hosts_secret_file"))
    least, count = counts(*_given("num_processes"))
    hosts.connect(
        _where(),
        num_processes=count,
        process_id=_process_id(),
        least_processes=least,
        facts=_facts(),
        timeouts=hosts.Timeouts(given.start_seconds, given.heartbeat_seconds, given.barrier_seconds),
        secret=hosts.secret.read(secret_file) if secret_file and _where() != "none" else b"",
    )
    return hosts.mesh(given.devices)


def _where() -> str:
    """Return what --hosts says, or --coordinator_address, or the environment."""
    flag, address = flags.FLAGS.hosts, flags.FLAGS.coordinator_address
    if flag is None and address is None:
        flag, address = (os.environ.get(_variable(name)) or None for name in ("hosts", "coordinator_address"))
    if flag is not None and address is not None and flag != address:
        raise UsageError(f"--coordinator_address={address} differs from --hosts={flag}; name one of them")
    return flag or address or "none"


def _given(name: str) -> tuple[str, str | None]:
    """Return where a number was given and its text: its flag, or the environment unless --hosts=none was given."""
    value = flags.FLAGS[name].value
    if value is not None or flags.FLAGS.hosts == "none":
        return f"--{name}", None if value is None else str(value)
    return _variable(name), os.environ.get(_variable(name)) or None


def _process_id() -> int | None:
    name, text = _given("process_id")
    if text is not None and not text.removeprefix("-").isdecimal():
        raise UsageError(f"{name}={text} must be a whole number")
    return None if text is None else int(text)


def counts(name: str, text: str | None) -> tuple[int | None, int | None]:
    """Return the least number that a flag gives, as in 2:4, and the largest; None for what is not given."""
    numbers = [] if text is None else text.split(":")
    if len(numbers) > 2 or not all(number.removeprefix("-").isdecimal() for number in numbers):
        raise UsageError(f"{name}={text} must be a whole number, or the least and the largest one, such as 2:4")
    found = [int(number) for number in numbers]
    return found[0] if len(found) > 1 else None, found[-1] if found else None


def _variable(name: str) -> str:
    return f"SGDLAB_{name.upper()}"


def _facts() -> Mapping[str, str]:
    """Return what must be equal on all processes: versions, code, settings, flags, entries of the configuration."""
    if _where() == "none":
        return {}
    jax = importlib.import_module("jax")
    found = {
        f"the version of {name}": importlib.metadata.version(name)
        for name in ("jax", "jaxlib", "flax", "optax", "numpy", "scipy")
    }
    found |= {
        "the version of sgdlab": sgdlab.__version__,
        "the code of sgdlab": runs.digests.of_source(sgdlab.__file__),
    }
    found |= {name: repr(getattr(jax.config, name, None)) for name in _SETTINGS_OF_JAX}
    for flag in flag_names.own_flags():
        if flag.name not in _NOT_SHARED:
            found[f"--{flag.name}"] = repr(flag.value)
    for file in flags.FLAGS.parts:
        found[f"the code of --parts={pathlib.Path(file).name}"] = runs.digests.of_source(file)
    found["the version of Python"] = platform.python_version()
    # Of a recorded trace, or a data set in a file, the configuration has the path alone.
    with contextlib.suppress(UsageError):  # said by the command itself
        for family, digest in runs.digests.of_run(runs.resolve(flags.FLAGS.config)).items():
            found[f"the code and the files of --config.{family}"] = repr(digest)
    for name, value in runs.configuration.flat(flags.FLAGS.config):
        found[f"--config.{name}"] = repr(value)
    return found
