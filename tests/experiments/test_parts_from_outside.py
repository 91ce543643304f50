"""One part of each family, written outside of the package: help, flag, check, run and row in the table."""

import csv
import dataclasses

import numpy as np
import optax
import pytest
from flax import nnx

from sgdlab import cluster, data, protocols, rules
from sgdlab.commands import compare, train
from sgdlab.predictors import Prediction
from sgdlab.registry import CLUSTERS, DATASETS, NETWORKS, PREDICTORS, PROTOCOLS, RULES
from sgdlab.runs.configuration import FAMILIES


@pytest.fixture(autouse=True)
def parts_of_ones_own(monkeypatch):
    for registry in FAMILIES:
        monkeypatch.setattr(registry, "_parts", dict(registry))

    @PROTOCOLS.register(title="Every other worker", rule="halved")
    def every_other(runtimes, *, offset: int = 0, num_gradients: int | None = None):
        """Only every other worker takes part.

        Args:
          runtimes: float64[T, N], seconds.
          offset: the first of them.
          num_gradients: how many gradients.
        """
        if offset not in (0, 1):
            raise ValueError(f"offset={offset} must be 0 or 1")
        return protocols.asynchronous(runtimes[:, offset::2], num_gradients=num_gradients)

    @RULES.register(title="Halved SGD", families=("Mine",))
    def halved(*, learning_rate, share: float = 0.5):
        """SGD with a share of the rate.

        Args:
          learning_rate: eta.
          share: of it.
        """
        if share <= 0:
            raise ValueError(f"share={share} must be above 0")
        return rules.server_rule(optax.chain(optax.scale(share), optax.scale_by_learning_rate(learning_rate)))

    @CLUSTERS.register("metronome", title="Metronome")
    @dataclasses.dataclass(frozen=True)
    class Metronome:
        """Workers that take equally long.

        Attributes:
          num_workers: N.
          beat: seconds.
        """

        num_workers: int
        beat: float = 2.0

        def __post_init__(self):
            if self.beat <= 0:
                raise ValueError(f"beat={self.beat} must be above 0")

        def draw(self, rows, *, seed):
            return np.full((rows, self.num_workers), self.beat)

        def __str__(self):
            return f"a metronome of {self.beat:g} s"

    @PREDICTORS.register(title="All but a few")
    class all_but:  # noqa: N801
        """Leaves out as many as it is told.

        Args:
          fewer: how many are not waited for.
        """

        title = "all but a few"

        def __init__(self, *, fewer: int = 1):
            if fewer < 0:
                raise ValueError(f"fewer={fewer} must be at least 0")
            self.fewer = fewer

        def start(self, window, *, seed):
            return window.shape[1]

        def predict(self, state, *, rate=None):
            nothing = np.full(state, np.nan)
            return Prediction(state - self.fewer, nothing, nothing)

        def observe(self, state, runtimes, cut_at):
            return state

    @NETWORKS.register(title="Linear classifier")
    class linear(nnx.Module):  # noqa: N801
        """One layer.

        Args:
          scale: of the pixels.
          image_shape: height, width and channels.
          num_classes: logits.
          rngs: random streams.
        """

        def __init__(self, *, scale: float = 1.0, image_shape, num_classes, rngs):
            if scale <= 0:
                raise ValueError(f"scale={scale} must be above 0")
            self.scale, self.layer = scale, nnx.Linear(int(np.prod(image_shape)), num_classes, rngs=rngs)

        def __call__(self, images):
            return self.layer(self.scale * images.reshape(images.shape[0], -1))

    @DATASETS.register(title="Stripes")
    def stripes(*, size: int = 4):
        """Images with a bright line, across or down.

        Args:
          size: height and width, pixels.
        """
        if size < 2:
            raise ValueError(f"size={size} must be at least 2")
        labels = np.arange(128, dtype=np.int32) % 2
        images = np.zeros((128, size, size, 1), np.float32)
        images[labels == 0, 1] = 1
        images[labels == 1, :, 1] = 1
        return data.Dataset(data.Images(images, labels), data.Images(images[:32], labels[:32]), num_classes=2)


CUTOFF = ("--config.predictor.kind=all_but", "--config.protocol.cutoff.window=1")
CHOSEN = (
    "--config.cluster.kind=metronome",
    "--config.network.kind=linear",
    "--config.data.kind=stripes",
    "--config.batch_size=8",
    "--config.optimizer.learning_rate=0.05",
    "--config.epochs=2.0",
    "--config.evaluations=2",
    "--config.rate.warmup_epochs=0.0",
)


def test_entries_stand_in_help(call):
    code, output, _ = call(train, "--help=all")
    assert code == 0
    for entry, default, words in (
        ("protocol.every_other.offset", "0", "the first of them."),
        ("rule.halved.share", "0.5", "of it."),
        ("cluster.metronome.beat", "2.0", "seconds."),
        ("predictor.all_but.fewer", "1", "how many are not waited for."),
        ("network.linear.scale", "1.0", "of the pixels."),
        ("data.stripes.size", "4", "height and width, pixels."),
    ):
        (line,) = [line for line in output.splitlines() if line.strip().startswith(f"--config.{entry}=")]
        assert line.split() == [f"--config.{entry}={default}", *words.split()]
    assert "every_other" in output[output.index("Methods:") :]
    assert "halved" in output[output.index("Methods:") :]


@pytest.mark.parametrize(
    ("method", "flag"),
    [
        ("every_other", "--config.protocol.every_other.offset=2"),
        ("every_other", "--config.rule.halved.share=-1.0"),
        ("halved", "--config.cluster.metronome.beat=0.0"),
        ("cutoff", "--config.predictor.all_but.fewer=-1"),
        ("halved", "--config.network.linear.scale=0.0"),
        ("halved", "--config.data.stripes.size=1"),
    ],
)
def test_what_they_refuse_is_one_line_that_names_the_flag(method, flag, call, tmp_path):
    cutoff = CUTOFF if method == "cutoff" else ()
    code, _, errors = call(train, *CHOSEN, *cutoff, f"--config.method={method}", flag, f"--workdir={tmp_path / 'run'}")
    assert code == 2
    (line,) = errors.splitlines()
    assert line.startswith(f"error: {flag} must be ")
    assert not (tmp_path / "run").exists()


@pytest.mark.long("two runs with parts from outside")
def test_they_run_and_have_a_row_in_the_table(call, tmp_path):
    code, _, errors = call(
        compare, *CHOSEN, *CUTOFF, "--methods=every_other,halved,cutoff", "--num_workers=4", "--seeds=1",
        "--processes=1", "--equal=gradients",
        "--config.cluster.metronome.beat=3.0", f"--workdir={tmp_path}",
    )  # fmt: skip
    assert code == 0, errors
    rows = {row["method"]: row for row in csv.DictReader((tmp_path / "table.csv").read_text().splitlines())}
    assert set(rows) == {"nag_asgd", "every_other", "halved", "cutoff"}
    for name in ("every_other", "halved"):
        assert float(rows[name]["test_accuracy_mean"]) > 0.5
    gradients = 2 * 16  # epochs x batches
    assert float(rows["halved"]["seconds_mean"]) == 3.0 * gradients / 4
    assert float(rows["every_other"]["seconds_mean"]) == 3.0 * gradients / 2
    # The first update waits for 4 workers, all others for 3.
    assert float(rows["cutoff"]["gradients_mean"]) == 4 + 3 * -(-(gradients - 4) // 3)
    text = (tmp_path / "table.md").read_text()
    for words in ("Every other worker", "Halved SGD", "a metronome of 3 s"):
        assert words in text
    assert "a metronome of 3 s" in (tmp_path / "report.html").read_text()


def test_a_cluster_of_ones_own_is_a_law_like_the_others():
    law = CLUSTERS.make("metronome", {}, num_workers=3)
    assert law.draw(2, seed=0).shape == cluster.Gamma(num_workers=3).draw(2, seed=0).shape
