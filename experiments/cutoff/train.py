r"""Trains the deep Markov model of a cluster, on a recorded trace or a simulated run.

    python -m experiments.cutoff.train --config=configs/cutoff.py:two_state --workdir=runs/two_state
    python -m experiments.cutoff.train --config=configs/cutoff.py:two_state --config.cluster.kind=recorded \
        --config.cluster.recorded.trace=mine.parquet --config.cluster.train_steps=2000 --workdir=runs/mine

Writes to the work directory: config.json, training.png and .svg (the ELBO during training), Orbax checkpoints, from
which the same command continues if it was killed, and the directory `model`. Takes about a minute on two cores for 158
workers.

`Cutoff SGD` trains with the model by:

    python -m experiments.main --config.method=cutoff --config.predictor.kind=deep_markov \
        --config.predictor.deep_markov.model=runs/mine/model --config.protocol.cutoff.window=20 \
        --config.cluster.kind=recorded --config.cluster.recorded.trace=mine.parquet --config.cluster.num_workers=4
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.cutoff import models
from experiments.cutoff.cases import training_run
from experiments.harness import PALETTE, canvas
from sgdlab.commands import launch
from sgdlab.deep_markov import TrainedModel
from sgdlab.errors import said_of
from sgdlab.results import plots
from sgdlab.runs import store

DEFAULT_CONFIG, DEFAULT_WORKDIR = "configs/cutoff.py:two_state", "runs/cutoff_model"


def main(argv: Sequence[str]) -> None:
    """Trains the model, or loads it, and draws its training."""
    del argv
    config, path = launch.CONFIG.value, launch.workdir(DEFAULT_WORKDIR)
    with said_of("--config.cluster."):  # a recording that cannot be read is refused before the directory is claimed
        training_run(config.cluster, config.widths.lag)
    store.claim(path, config.to_dict())

    def report(evaluation: Mapping[str, Any]) -> None:
        print(
            f"  step {evaluation['step']:>6.0f} of {config.fitting.steps}: ELBO {evaluation['elbo']:.4f}, validation "
            f"{evaluation['validation_elbo']:.4f} nats per value",
            flush=True,
        )

    if not TrainedModel.exists(path / "model"):
        models.fitted(config, path, report)
    model = TrainedModel.load(path / "model")
    plots.save(draw(model), path / "training")
    best = models.best_evaluation(model)
    print(
        f"{path / 'model'}: {model.num_workers} workers, run-times divided by {model.divisor:.4g} s, best validation "
        f"ELBO {best['validation_elbo']:.4f} nats per value at step {best['step']:.0f}"
    )


def draw(model: TrainedModel) -> Figure:
    """Draws the ELBO of the batches and of the validation windows against the training step."""
    drawn, ((axes,),) = canvas(width=7, height=4)
    steps, elbo, validation = (
        [evaluation[name] for evaluation in model.history] for name in ("step", "elbo", "validation_elbo")
    )
    axes.plot(steps, elbo, label="training", color=PALETTE[-1], linestyle="--")
    axes.plot(steps, validation, label="validation", color=PALETTE[0])
    levels = sorted(validation)
    spread = levels[-1] - levels[len(levels) // 4] + 0.01
    axes.set_ylim(levels[-1] - 6 * spread, levels[-1] + 3 * spread)  # the first evaluations are far below
    axes.set_xlabel("step")
    axes.set_ylabel("ELBO, nats per value")
    axes.legend()
    return drawn


if __name__ == "__main__":
    launch.Command(main=main, usage=__doc__, configured=DEFAULT_CONFIG).run()
