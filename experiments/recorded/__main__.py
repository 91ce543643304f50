"""Records jobs whose faults are known, and scores predictors and diagnosis on them.

    python -m experiments.recorded --workdir=runs/recorded               records 20,000 steps, in some ten minutes
    python -m experiments.recorded --score                               scores on the sample in the repository
    python -m experiments.recorded --score --traces=runs/recorded,logs   and on other traces

An episode is a job of four processes, which train a perceptron on images of digits and average their gradients over
TCP. In three of four episodes something makes one worker slow since a step: more computation, a slow loader, a
throttled disk, a limited link, a busy neighbour, or stops. What, whom, since when and how much is in truth.json, beside
a Parquet file for each episode, which `sgdlab advise` reads. Recording takes Linux.

The same command continues a recording that was interrupted; with more --episodes it becomes longer. What is there is
not recorded again. Links are limited by `tc` in network namespaces where these can be made (by root), and else by
pauses between the parts of a message.
"""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from experiments.benchmarks.faults.namespaces import why_not
from sgdlab.commands import launch
from sgdlab.errors import UsageError

DEFAULT_WORKDIR = "runs/recorded"


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_integer("episodes", 40, "Jobs to record.", lower_bound=1)
    flags.DEFINE_integer("steps", 500, "Steps of each job.", lower_bound=20)
    flags.DEFINE_integer("workers", 4, "Processes of each job.", lower_bound=3, upper_bound=64)
    flags.DEFINE_integer("seed", 0, "Of the faults, the parameters and the noise.", lower_bound=0)
    says = "Put workers into network namespaces, whose links can be limited; by default where they can be made."
    flags.DEFINE_bool("namespaces", None, says)
    flags.DEFINE_bool("score", False, "Score predictors and rules, instead of recording.")
    says = "Folders of traces to score on as well, separated by commas; with a truth.json, diagnosis is scored too."
    flags.DEFINE_list("traces", [], says)
    flags.DEFINE_bool("store", False, "Keep the scores in experiments/results/recorded.")


def main(argv: Sequence[str]) -> None:
    """Records, or scores."""
    del argv
    given = flags.FLAGS
    if given.score:
        from experiments.recorded import scoring  # noqa: PLC0415 (it takes seconds)

        scoring.main([scoring.SAMPLE, *map(pathlib.Path, given.traces)], store=given.store)
        return
    for name in ("traces", "store"):
        if given[name].value:
            raise UsageError(f"--{name} must be given with --score, which reads traces")
    if not sys.platform.startswith("linux"):
        raise UsageError(f"recording takes Linux, which keeps a process on one core; this is {sys.platform}")
    refused = why_not()
    if refused and given.namespaces:
        raise UsageError(f"--namespaces is impossible here: {refused}")
    from experiments.recorded import recording  # noqa: PLC0415 (it imports what Linux alone has)

    folder = launch.workdir(DEFAULT_WORKDIR)
    namespaces = not refused if given.namespaces is None else given.namespaces
    recording.record(
        folder, given.episodes, steps=given.steps, workers=given.workers, seed=given.seed, namespaces=namespaces
    )
    print(f"Recorded: {given.episodes} episodes and truth.json in {folder}")


COMMAND = launch.Command(
    main=main, usage=__doc__, define=define_flags, configured=False, hidden=("parts",), workdir="Where to record."
)

if __name__ == "__main__":
    COMMAND.run()
