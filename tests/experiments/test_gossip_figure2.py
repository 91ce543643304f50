"""All-reduce against pull gossip with many nodes: what is measured and judged, and the sizes of Figures 1 and 2."""

import itertools

import numpy as np
import pandas as pd
import pytest

from configs import imagenet_resnet18
from experiments import premises
from experiments.gossip import comparison, figure1, figure2, sizes
from experiments.gossip.comparison import ELASTICS, KEYS, PULL, PUSH, REDUCE
from experiments.harness import Session, Sweep, within
from sgdlab.runs import resolve
from sgdlab.runs.plan import make_plan
from sgdlab.runs.rates import rates
from tests.lib.unlike import unlike

WORDS = figure2.WORDS | comparison.quantities(figure2.TARGETS["laptop"])
LOGS = ("seconds_a_step", "early_loss", "error", "steps_to_train_loss", "seconds_to_test_loss")
IMAGES = 1_281_167


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The figure of 2 and 4 nodes, and its session."""
    with within(Session(tmp_path_factory.mktemp("gossip"), jobs=1)) as session:
        values = figure2.figure2.values("smoke") | {"num_nodes": [4, 2], "epochs": 1.0, "minibatch": 64}
        yield figure2.figure2(**values), session


@pytest.mark.full
def test_the_table_has_what_the_runs_measured(made):
    output, session = made
    found = output.table.set_index(["quantity", "p", "method"]).ours
    assert len(session.used) == 4
    for records in session.used.values():
        config, end = records[0]["config"], records[-1]
        p, method = config["cluster"]["num_workers"], comparison.TITLES[end["method"]]
        assert config["batch_size"] == 64
        assert found["test loss, end", p, method] == pytest.approx(end["test_loss"])
        assert found["seconds a step", p, method] == pytest.approx(end["seconds"] * p / end["gradients"])
        first = [r["test_loss"] for r in records if r["kind"] == "evaluation" and r["epoch"] <= 1 / 3 + 1e-9][-1]
        assert found["test loss at the end of the first rate", p, method] == pytest.approx(first)
        assert found[figure2.WORDS[figure2.GAINED], p, method] == pytest.approx(100 * np.log(first / end["test_loss"]))
    assert [claim.holds.holds for claim in output.claims] == [None] * 8  # of a single seed
    panels = [axes.get_title() for axes in output.picture.axes]
    assert panels == [f"p = {p}: pairs of digits (in place of ImageNet)" for p in (2, 4)] + ["", ""]


def test_the_early_loss_is_that_at_the_time_when_gossip_is_annealed():
    """Gossip's first rate ends with epoch 1, after 4 s, when all-reduce is half-way between its first evaluations."""
    points = {REDUCE: [(0.0, 0.0, 2.0), (1.0, 8.0, 1.0), (2.0, 16.0, 0.5)]}
    points[PULL] = [(0.0, 0.0, 2.0), (1.0, 4.0, 1.25), (2.0, 8.0, 1.0)]
    evaluations = pd.DataFrame(
        [
            {"p": 32, "method": method, "tau": tau, "seed": 3, "epoch": epoch, "seconds": seconds, "test_loss": loss}
            for (method, tau), of_run in points.items()
            for epoch, seconds, loss in of_run
        ]
    )
    ends = [(REDUCE, 0.5, 1.0, None), (PULL, 1.0, 1.25, 0.75)]
    runs = pd.DataFrame(
        [
            dict(zip(KEYS, (32, *run, 3), strict=True), test_loss=end, first_rate_loss=first, node_accuracy=node)
            for run, end, first, node in ends
        ]
    ).set_index(KEYS)
    found = figure2.early(runs, evaluations, annealed=1.0)
    assert found.loc[(32, *REDUCE, 3), figure2.EARLY] == 1.5
    assert found.loc[(32, *PULL, 3), figure2.EARLY] == 1.25
    assert found[figure2.GAINED].tolist() == pytest.approx([100 * np.log(2), 100 * np.log(1.25)])
    assert found[figure2.NODE].tolist()[1] == 25.0


def runs_of(values, counts=(32, 64), seeds=3, idle=0.2):
    """Runs whose quantities are 1, but for those that `values` names: (method with tau) -> quantity -> value or of p.

    Seeds differ by 10 %, alike for all methods.
    """
    rows = []
    for (run, changed), p, seed in itertools.product(values.items(), counts, range(seeds)):
        numbers = dict.fromkeys(WORDS, 1.0) | {
            name: value(p) if callable(value) else value for name, value in changed.items()
        }
        scaled = {name: value * (1 + 0.1 * seed) for name, value in numbers.items()}
        rows.append(
            dict(zip(KEYS, (p, *run, seed), strict=True)) | scaled | {"seconds": 1e6, "steps": 1e6, "idle_share": idle}
        )
    runs = pd.DataFrame(rows).set_index(KEYS).sort_index()
    return runs.assign(
        test_loss=unlike(runs.test_loss), **{n: unlike(runs[n], i) for i, n in enumerate(LOGS, 1) if n in runs}
    )


def verdicts(values, **options):
    claims = figure2.claims(runs_of(values, **options), WORDS)
    return [claim.holds.holds for claim in claims]


def test_claims_on_seconds_are_outside_where_messages_take_none():
    for idle, outside in ((0.2, 0), (0.001, 2)):
        claims = figure2.claims(runs_of({REDUCE: {}, PULL: {"early_loss": 0.5}}, idle=idle), WORDS)
        found = [claim for claim in claims if claim.cause == premises.FREE]
        assert [claim.verdict for claim in found] == ["not in our regime"] * outside


def test_claims_hold_where_it_is_as_in_the_paper():
    as_in_the_paper = {
        "seconds_a_step": 0.8, "early_loss": 0.5, "test_loss": lambda p: 1 + p / 100, "gained": 10.0, "error": 2.0,
        "steps_to_train_loss": 2.0, "seconds_to_test_loss": 0.5,
    }  # fmt: skip
    bad = {run: {"test_loss": 5.0} for run in (PUSH, *ELASTICS)}
    values = {REDUCE: {"gained": 30.0}, PULL: as_in_the_paper}
    assert verdicts(values | bad) == [True] * 10
    assert verdicts(values) == [True] * 8  # the others are not trained
    assert verdicts(values, seeds=1) == [None] * 8
    assert len(verdicts(values, counts=(64, 128))) == 7  # without the claim on up to 32 nodes
    assert verdicts(values, counts=(64,))[5] is None  # one number of nodes does not scale


def test_claims_fail_where_it_is_the_other_way_round():
    opposite = {
        "seconds_a_step": 1.2, "early_loss": 2.0, "test_loss": lambda p: 1 - p / 100, "gained": 25.0, "error": 0.5,
        "steps_to_train_loss": 0.5, "seconds_to_test_loss": 2.0,
    }  # fmt: skip
    good = {run: {"test_loss": 0.2} for run in (PUSH, *ELASTICS)}
    assert verdicts({REDUCE: {"gained": 30.0}, PULL: opposite} | good) == [False] * 10


@pytest.mark.parametrize(
    ("reduce", "pull", "slower"),
    [(30.0, 14.5, True), (30.0, -5.0, True), (30.0, 15.5, False), (30.0, 35.0, False), (5.2, 1.0, None)],
)
def test_much_slower_after_annealing_is_to_gain_less_than_half(reduce, pull, slower):
    # With 10 % between seeds, the interval of 5.2 per cent includes less than 5.
    runs = runs_of({REDUCE: {"gained": reduce}, PULL: {"gained": pull}})
    assert figure2.much_slower(comparison.Compared(runs, 32, WORDS)).holds is slower


def test_elastic_averaging_must_be_worse_than_both():
    values = {REDUCE: {}, PULL: {"test_loss": 2.0}, **{run: {"test_loss": 1.5} for run in ELASTICS}}
    assert verdicts(values)[-1] is False


@pytest.mark.parametrize(("figure", "counts"), [(figure1.figure1, (8, 16)), (figure2.figure2, (32, 64, 128))])
def test_the_papers_own_size(figure, counts):
    """ImageNet and ResNet-18: 90 epochs, and for 256 examples a step 450,000 iterations, annealed at 150k and 300k."""
    values = figure.values("paper")
    assert tuple(values["num_nodes"]) == counts
    config = sizes.configured(values["size"], epochs=values["epochs"])
    assert (config.network.kind, config.data.kind, config.data.imagenet.size) == ("resnet18", "imagenet", 224)
    assert (config.optimizer.momentum, config.optimizer.nesterov, config.optimizer.weight_decay) == (0.9, True, 1e-4)
    for p in counts:
        size = values["aggregate"] // p if "aggregate" in values else values["minibatch"]
        assert size == {8: 32}.get(p, 16)
        aggregate = p * size
        table = rates(
            resolve(config).rate, peak=config.optimizer.learning_rate, num_workers=p, epochs=config.epochs,
            updates_per_epoch=IMAGES / aggregate,
        )  # fmt: skip
        (falls,) = np.nonzero(np.diff(table))
        assert table[[0, falls[0] + 1, -1]] == pytest.approx([0.1, 0.01, 0.001])
        assert (falls + 1) * aggregate / 256 == pytest.approx([150_000, 300_000], rel=1e-3)
        assert len(table) * aggregate / 256 == pytest.approx(450_000, rel=1e-3)
    assert config.protocol.elastic_averaging == imagenet_resnet18.get_config().protocol.elastic_averaging


@pytest.mark.parametrize("figure", [figure1.figure1, figure2.figure2])
def test_sizes_without_their_data_have_configurations_that_can_be(figure):
    for scale, network in (("gpu", "resnet18"), ("paper", "resnet18")):
        values = figure.values(scale)
        config = sizes.configured(values["size"], epochs=values["epochs"])
        (run,) = Sweep(config, [{"method": "pull_gossip", "cluster.num_workers": 32, "batch_size": 16}]).runs
        resolve(run.settings)
        assert run.settings.network.kind == network
    assert run.settings.rate.steps[0] * 3 == pytest.approx(config.epochs, rel=1e-2)


def test_all_methods_share_the_papers_rate():
    values = figure2.figure2.values("laptop")
    config = sizes.configured("laptop", epochs=values["epochs"])
    config.batch_size = values["minibatch"]
    for p, (method, _) in itertools.product((32, 128), (REDUCE, PULL)):
        config.cluster.num_workers, config.method = p, method
        plan = make_plan(config)
        assert plan.rates[[0, -1]] == pytest.approx([0.1, 0.001])
        assert plan.num_gradients == 45 * (20_000 // 4)
