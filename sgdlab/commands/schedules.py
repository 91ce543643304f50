"""Schedules that a command line names: of methods, of a file, of a recorded run, or of methods on a recorded trace."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from sgdlab import runs
from sgdlab.commands import launch, shared_flags
from sgdlab.errors import UsageError
from sgdlab.peer_schedule import AnySchedule, PeerSchedule
from sgdlab.schedule import Schedule

if TYPE_CHECKING:
    from sgdlab.runs.experiment import Experiment


def define_flags(verb: str, *, methods: str, steps: int | None) -> None:
    """Defines the flags that name schedules, and those of traces.

    Of a trace, so many `steps` are used unless told otherwise; None: all.
    """
    number = "all" if steps is None else steps
    shared_flags.define_trace()
    flags.DEFINE_integer("first_step", None, f"First step of the trace to {verb} (default: the first complete one).")
    flags.DEFINE_integer("steps", None, f"Steps of the trace to {verb} (default: {number}).", lower_bound=1)
    flags.DEFINE_list("methods", [], f"Methods to {methods}, separated by commas.")
    flags.DEFINE_string("schedule", None, f"A schedule.npz to {verb} instead of the configuration's schedule.")


def trace(argv: Sequence[str]) -> str | None:
    """Return the trace that is named, or None; flags that contradict each other are refused."""
    given = flags.FLAGS
    sources = {"trace": given.trace or argv[1:], "recording": given.recording, "schedule": given.schedule}
    named = [name for name, value in sources.items() if value]
    if len(named) > 1:
        raise UsageError(f"--{named[1]}={given[named[1]].value} must be left out: --{named[0]} has the compute times")
    path = shared_flags.trace_path(argv) if "trace" in named else None
    if path is not None:
        decided = ("cluster", "epochs", "batch_size")
        launch.refuse_entries(decided, "--trace has the cluster, and --steps says how much of it is drawn")
    for name in ("first_step", "steps") if path is None else ():
        if given[name].value is not None:
            raise UsageError(f"--{name}={given[name].value} must be left out without --trace")
    if given.methods and named and path is None:
        raise UsageError(f"--methods={','.join(given.methods)} must be left out: --{named[0]} has a schedule")
    return path


def experiments() -> dict[str, "Experiment"]:
    """Return the experiment of each of --methods; that of the configuration, by an empty name, if there are none.

    Raises:
      UsageError: where --methods is empty, or an entry has no effect, or names the method as well.
    """
    methods, entries = flags.FLAGS.methods, launch.given_entries()
    if not methods and flags.FLAGS["methods"].present:
        raise UsageError("--methods= must name at least one method, or be left out")
    if not methods:
        experiment = runs.resolve(launch.CONFIG.value)
        runs.configuration.check_used(entries, [experiment.taken])
        return {"": experiment}
    if "method" in entries:
        raise UsageError("--config.method must be left out: --methods names the methods")
    found = {}
    for method in list(runs.methods.methods()) if methods == ["all"] else methods:
        runs.methods.check(method, "--methods")
        config = launch.CONFIG.value.copy_and_resolve_references()
        config.method = method
        found[method] = runs.resolve(config)
    runs.configuration.check_used(entries, [experiment.taken for experiment in found.values()])
    return found


def load(path: str) -> AnySchedule:
    """The schedule of a file, of either kind; one that is none is refused."""
    try:
        return Schedule.load(path)
    except FileNotFoundError:
        raise UsageError(f"--schedule={path} must be a file") from None
    except ValueError as not_a_schedule:
        try:
            return PeerSchedule.load(path)
        except ValueError as not_a_peer_schedule:
            # A file without the column of workers was meant as a peer schedule.
            error = not_a_peer_schedule if "worker" in str(not_a_schedule) else not_a_schedule
            raise UsageError(f"--schedule={path} must be a schedule: {error}") from None
