"""Diagnoses a trace of training steps: which workers are stragglers, since when, what they cost, and what to do.

    sgdlab advise trace.csv

The trace holds how long each worker took in each step for its own work, before it waited for the others: a Parquet or
CSV file or JSON lines, one for all workers or one for each, or what a profiler writes (PyTorch, JAX, NCCL); columns and
units are recognised, or named by --columns and --unit (docs/traces.md in the repository). Steps may be sampled. Steps
in which a compute time is missing are excluded, or filled in where they are many and single workers lack up to three in
a row; a worker that stops recording is left out.

The answer begins with the machine to look at first and with what to do. Below it, all protocols are compared on the
last steps of the trace (the evaluation steps): full synchrony, with and without the slow machines, every number of
backup workers, a deadline of median + k MAD, running mean, Elfving, Kalman filter, the deep Markov cutoff and
asynchrony, with an oracle as the upper bound. Parameters are tuned and models are trained on the steps before them (the
tuning steps), without steps that paused all workers. This takes from some seconds to two minutes, most of it for the
deep Markov model, which is trained from 500 tuning steps on; --model=no leaves it out, --model=yes trains it on fewer.
--refit=50 tunes again every 50 evaluation steps, on the steps before.

    sgdlab advise trace.csv --what_if
    sgdlab advise --follow=trace.csv --serve --metrics=127.0.0.1:9100
    sgdlab advise --compare=before.csv after.csv
    sgdlab advise --recording=runs/live/recording.npz

--what_if takes seconds: what full synchrony would gain if single workers, nodes, pauses or phases were as fast as the
median, and scores of each worker. --follow reads a trace that grows, and reports which workers become slow, to a
terminal, a page, Prometheus, an OpenTelemetry collector or a webhook. --compare says what changed between two traces:
workers that are slower or faster, seconds a step, causes that came and went, with intervals. --recording takes a run
of `sgdlab live`: row t holds the time of each worker's t-th gradient, as the server saw it. --help=all lists all flags.

Where communication was recorded, the answer says what share of a step it is, and would be with local steps or with
messages of 4 bits; where sizes of messages are known (NCCL's flight recorder, or --parameters=7e9 --dtype=bf16), also
latency, bandwidth, and how many workers saturate a server. Workers that were missing and came back, and stops of all,
are failures: the time between them, how often to write a checkpoint (--checkpoint_seconds=90), and spares.

--rejoin_seconds=120: a worker that is dropped must heal, and takes so long to come back; a cutoff is recommended where
it saves more. --timeouts says which time-outs to set in torchft or hivemind, from the process group to the quorum, and
how probable it is that each drops a worker that is only late.

If the trace has the operations of a pipeline-parallel job (docs/traces.md in the repository), the answer says which
stage of which rank and which messages are slow, whether sequence lengths differ and what distributing them by cost
would save, and which layers to move (--layers=8 if each stage holds 8). Each is priced by the longest path through the
steps.

Results in the work directory (default: runs/advise/<name>): advice.html, a self-contained page; advice.md and
advice.json; the tables as CSV; answered.parquet, the evaluation steps, which the proposed commands use; plots as PNG
and SVG; model/, the trained deep Markov model.
"""

import pathlib
import sys
import time
from collections.abc import Callable, Sequence

from absl import flags

from sgdlab import arguments
from sgdlab.commands import follow, launch, shared_flags
from sgdlab.errors import UsageError, said_of
from sgdlab.stragglers import recording
from sgdlab.traces.messages import DTYPES


def define_flags() -> None:
    """Defines the flags of this command."""
    shared_flags.define_trace()
    flags.DEFINE_float("train_share", 0.5, "Share of the complete steps, from the first on, used for tuning.")
    flags.DEFINE_enum(
        "model",
        "auto",
        ["auto", "yes", "no"],
        "Whether the deep Markov model is trained; auto: from 500 tuning steps on, unless it takes minutes.",
    )
    flags.DEFINE_integer(
        "steps", 3000, "Largest number of optimiser steps in training the deep Markov model.", lower_bound=1
    )
    flags.DEFINE_integer("refit", None, "Also tunes again every REFIT evaluation steps.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of training, of the predictors' draws and of the intervals.", lower_bound=0)
    flags.DEFINE_integer(
        "layers", None, "Layers of each stage of a pipeline, to say which ones to move.", lower_bound=1
    )
    flags.DEFINE_float(
        "parameters", None, "Numbers that each worker averages with the others in a step, such as 7e9, for the network."
    )
    flags.DEFINE_enum("dtype", None, list(DTYPES), "Of these numbers as they are sent; by default fp32.")
    flags.DEFINE_float(
        "checkpoint_seconds", None, "Seconds that writing a checkpoint takes, to say how often to write one."
    )
    flags.DEFINE_float(
        "rejoin_seconds", 0.0, "Seconds that a dropped worker takes to come back: a cutoff has to save more than that."
    )
    flags.DEFINE_bool("timeouts", False, "Also says which time-outs to give torchft or hivemind.")
    flags.DEFINE_float("max_false_drop", None, "Largest probability of a step that a time-out cuts off (0.001).")
    flags.DEFINE_bool(
        "what_if",
        False,
        "Prints only what full synchrony would gain from each single repair, and each worker's scores.",
    )
    flags.DEFINE_string("compare", None, "Trace to compare with the one that follows: what changed, with intervals.")
    follow.define_flags()


def main(argv: Sequence[str]) -> None:
    """Reads the trace, finds what is slow, compares the protocols, prints and writes the results."""
    given, options = flags.FLAGS, shared_flags.trace_options()
    _refuse_together(argv)
    if given.follow:
        # Beside a file of alarms of its own, it writes nothing.
        workdir = pathlib.Path(given.alarms).parent if given.alarms else _workdir(given.follow)
        sys.exit(follow.run(given.follow, options, workdir))
    if given.compare:
        from sgdlab.commands import changes  # noqa: PLC0415 (likewise)

        changes.run(given.compare, argv[1], options, _workdir(argv[1]))
        return
    path, flag = shared_flags.trace_path(argv), "trace"
    if path is None:
        path, flag = given.recording, "recording"
    workdir = _workdir(path)
    if given.what_if:
        from sgdlab.commands import what_if  # noqa: PLC0415 (SciPy takes a while to import)

        what_if.run(path, options, workdir, given.seed, layers=given.layers, flag=flag)
        return
    if given.dtype and given.parameters is None:
        raise UsageError(f"--dtype={given.dtype} must come with --parameters, such as --parameters=7e9")
    with said_of("--"):
        for name in ("parameters", "checkpoint_seconds"):
            if given[name].value is not None:
                arguments.real(name, given[name].value, above=0)
        arguments.real("rejoin_seconds", given.rejoin_seconds, least=0)
        if given.max_false_drop is not None:
            arguments.real("max_false_drop", given.max_false_drop, above=0, below=1)
    if given.max_false_drop is not None and not given.timeouts:
        raise UsageError(f"--max_false_drop={given.max_false_drop:g} must come with --timeouts")
    begun = time.monotonic()
    report = lambda line: print(f"[{time.monotonic() - begun:6.1f} s] {line}", flush=True)
    parts = recording.read(path, options, train_share=given.train_share, flag=flag)
    if given.parameters is not None:
        from sgdlab.stragglers import network  # noqa: PLC0415 (it imports JAX)

        parts = network.with_sizes(parts, given.parameters, given.dtype or "fp32")
    print("\n".join(f"{name:<22}{value}" for name, value in parts.facts()), flush=True)
    _compare(parts, workdir, report)


def _refuse_together(argv: Sequence[str]) -> None:
    """Refuses flags that would change nothing, beside --follow or without it."""
    given = flags.FLAGS
    of_follow = ("once", "json", "alarms", "until_idle", "serve", "metrics", "otlp", "webhook")
    of_others = (
        "trace",
        "recording",
        "what_if",
        "trace_format",
        "train_share",
        "model",
        "steps",
        "refit",
        "seed",
        "layers",
        "parameters",
        "dtype",
        "checkpoint_seconds",
        "rejoin_seconds",
        "timeouts",
        "max_false_drop",
    )
    if given.follow or given.compare:
        shared_flags.check_serve(argv)
        alone = f"--follow={given.follow}" if given.follow else f"--compare={given.compare}"
        if not given.follow and len(argv) < 2:
            raise UsageError(f"{alone} must be followed by a second trace: --compare=BEFORE AFTER")
        words = [repr(argument) for argument in argv[1 if given.follow else 2 :]]
        refused = (*of_others, "compare") if given.follow else (*of_others, *of_follow)
        words += [f"--{name}" for name in refused if given[name].value != given[name].default]
        if words:
            raise UsageError(f"{words[0]} must be left out beside {alone}: it would change nothing")
        return
    for name in ("parameters", "dtype", "checkpoint_seconds", "rejoin_seconds", "timeouts", "max_false_drop"):
        if given.what_if and given[name].value != given[name].default:
            raise UsageError(f"--{name} must be left out beside --what_if: it would change nothing")
    for name in of_follow:
        if given[name].value != given[name].default:
            raise UsageError(f"--{name} must come with --follow=TRACE, a trace that grows")


def _compare(parts: recording.SplitRecording, workdir: pathlib.Path, report: Callable[[str], None]) -> None:
    # These import JAX, which takes seconds: what is wrong with the trace has been said by now.
    from sgdlab.stragglers import comparison, findings  # noqa: PLC0415
    from sgdlab.stragglers.answer import next_steps, publish  # noqa: PLC0415

    given = flags.FLAGS
    settings = comparison.ComparisonSettings(
        model=given.model,
        most_steps=given.steps,
        refit=given.refit,
        seed=given.seed,
        rejoin_seconds=given.rejoin_seconds,
    )
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        found = findings.gather_findings(
            parts,
            workdir / "model",
            settings=settings,
            layers=given.layers,
            checkpoint_seconds=given.checkpoint_seconds,
            max_false_drop=(given.max_false_drop or 0.001) if given.timeouts else None,
            report=report,
        )
        commands = next_steps.commands(found, str(workdir))
        report("drawing and writing")
        page = publish.write(workdir, found, commands)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    print(f"\n{publish.terminal_text(found, commands)}")
    print(f"\nReport: {page}")


def _workdir(path: str) -> pathlib.Path:
    return launch.workdir(f"runs/advise/{recording.named(path)}")


COMMAND = launch.Command(
    main=main,
    usage=__doc__,
    define=define_flags,
    configured=False,
    positional=True,
    workdir="Directory for the results; those of an earlier call are replaced.",
    unlisted=("alarms", "json", "once", "parts", "trace_format", "until_idle", "workers_per_node"),
)
