"""Repeats a recorded run of `sgdlab live`, gradient by gradient: with its own rule bit for bit, or with another rule.

    sgdlab replay runs/live/recording.npz --workdir=runs/again
    sgdlab replay --recording=runs/live/recording.npz --config.rule.kind=gap_aware --workdir=runs/gap_aware

The configuration is the recording's own; flags change it. Who computed which gradient on which version and which
examples, and when, is as it was recorded. With nothing changed it calls the programs of the live run once more, and
prints the largest difference from its parameters, which is 0.0 on the same kind of processor with the same versions;
with another rule, or other hyperparameters, all is one compiled loop, and it prints how both runs ended. Leaves in the
work directory what `sgdlab train` leaves, with the gap and the penalty of gradients, which a live run does not measure.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags

from sgdlab import arrays, results, runs
from sgdlab.commands import flag_names, launch, train
from sgdlab.errors import UsageError
from sgdlab.report.table import Table

if TYPE_CHECKING:
    from sgdlab.live.recording import LiveRecording

DEFAULT_WORKDIR = "runs/replay"
NAME = train.NAME
_EVENTS = ("cluster", "epochs", "predictor", "protocol", "batch_size", "replacement")
"""Entries that a recording decides: whom its server waited for, and what its workers computed."""


def config_file(arguments: Sequence[str]) -> str:
    """The configuration's file: that of the recording which the arguments name."""
    named = [*flag_names.values(arguments, "recording", split=False), *flag_names.files(arguments)]
    if flag_names.values(arguments, "config", split=False):
        raise UsageError("--config must be left out: a recording has its own configuration, which flags can change")
    if not named:
        return launch.DEFAULT_CONFIG
    if runs.recorded.configured(load(named[-1])) is None:
        raise UsageError(
            f"--recording={named[-1]} is of a loop of your own, or of a program: sgdlab.live.replay in Python repeats "
            "what sgdlab.live.train has recorded"
        )
    own = pathlib.Path(__file__).with_name("recorded_config.py")
    return f"{own}:{named[-1]}"


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("recording", None, "recording.npz of a run of `sgdlab live` (required).")
    train.define_run()


def main(argv: Sequence[str]) -> None:
    """Replays a recording, and compares it with the live run."""
    given, workdir = flags.FLAGS, launch.workdir(DEFAULT_WORKDIR)
    if given.recording is not None and argv[1:]:
        raise UsageError(f"{argv[1]} must be left out beside --recording={given.recording}: there must be one")
    given.recording = given.recording or next(iter(argv[1:]), None)
    if given.recording is None:
        raise UsageError("--recording must name the recording of a run, as in --recording=runs/live/recording.npz")
    launch.refuse_entries(_EVENTS, "a replay has the events that were recorded")
    results.writers.check(given.writers)
    recording = load(given.recording)
    plan = runs.recorded.plan_of(launch.CONFIG.value, recording)
    experiment = plan.experiment
    runs.configuration.check_used(launch.given_entries(), [experiment.taken])
    say = functools.partial(print, flush=True)
    store, finished = train.store_of(workdir, experiment, rerun=given.rerun, say=say)
    changed = runs.recorded.changes(experiment, recording)
    if not (finished or changed or {"lanes", "mode"} & set(launch.given_entries())):
        plan = runs.recorded.repeated(plan, recording)
    if not finished:
        say(recording.schedule.describe(experiment.local.unit))
        train.leave_results(store, train.execute(plan, store, f"the replay of {given.recording}", say))
    path = pathlib.Path(given.recording)  # of a directory, or of the log in it, too
    found = (folder for folder in (path, *path.parents[:2]) if (folder / "parameters.npz").is_file())
    live = next(found, path.parent)
    if not changed:
        _say_difference(live, workdir, recording)
    _say_comparison(live, store.read(NAME) or [], changed)


def load(path: str) -> "LiveRecording":
    """Reads a recording, or says that there is none."""
    try:
        return runs.recorded.load(path)
    except FileNotFoundError:
        raise UsageError(f"--recording={path} must be a file, such as runs/live/recording.npz") from None
    except (ValueError, OSError) as error:
        raise UsageError(f"--recording={path} must be the recording of a run of `sgdlab live`: {error}") from error


def _say_difference(live: pathlib.Path, workdir: pathlib.Path, recording: "LiveRecording") -> None:
    """Says how far the parameters are from those of the live run, and where they may differ, why."""
    found: list[Any] = [_parameters(folder / "parameters.npz") for folder in (live, workdir)]
    if found[0] is None:
        print(f"There is no {live / 'parameters.npz'} to compare the parameters with.")
        return
    apart = runs.recorded.largest_difference(*found)
    print(f"largest difference from the parameters of the live run: {apart}")
    reasons = runs.recorded.other_versions(recording)
    if apart == 0.0:
        print("Every bit is the same.")
    elif reasons:
        print(f"The live run was computed with {'; '.join(reasons)}: replay is the same then to rounding.")
    else:
        print(
            "Versions and device are those of the live run; to rounding, replay may differ where workers computed on "
            "another kind of processor, or code has changed since."
        )


def _say_comparison(
    live: pathlib.Path, records: Sequence[Mapping[str, Any]], changed: Mapping[str, tuple[Any, Any]]
) -> None:
    """A table of how both runs ended, and what differs between them."""
    before = runs.store.Store.of(live).read(NAME)
    if not records or not before:
        return
    if changed:
        print("changed: " + ", ".join(f"{name} {new} (live {old})" for name, (old, new) in changed.items()))
    metric = results.metric.Metric.of(records[-1])
    headings, rows = ["", metric.title, "test loss", "mean gap"], []
    for name, run in (("live", before), ("replay", records)):
        last = run[-1]
        gap = "not measured" if last["gap"] is None or np.isnan(last["gap"]) else f"{last['gap']:.3g}"
        loss = "diverged" if last["test_loss"] is None else f"{last['test_loss']:.4f}"
        value = last[metric.test]
        rows.append([f"{name}: {last['title']}", "-" if value is None else metric.text(value), loss, gap])
    for row in (headings, *rows) if metric.name == "loss" else ():
        del row[1]  # it would stand there twice
    print(Table(dict.fromkeys(headings, ""), rows).grid())


def _parameters(path: pathlib.Path) -> dict[str, np.ndarray] | None:
    if not path.is_file():
        return None
    with arrays.opened(path) as file:
        return dict(file)


COMMAND = launch.Command(
    main=main,
    usage=__doc__,
    define=define_flags,
    configured=config_file,
    positional=True,
    own_entries=dict.fromkeys(
        ("batch_size", "cluster.kind", "cluster.num_workers", "epochs", "protocol.kind"), "recording"
    ),
    hidden=("config",),
)
