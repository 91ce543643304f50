"""`--dry_run`: what is counted, what is timed, which data are missing, and that nothing is run."""

import json

import numpy as np
import pandas as pd
import pytest
from lib import tiny
from sweep_works import doubled, tripled

from configs import cifar10_resnet20, digits, imagenet_resnet50, wikitext103_transformer_xl
from experiments.harness import Output, Session, Sweep, command, cost, dry, figures, prepare, stand_ins
from experiments.harness import trains as says_what_it_trains
from sgdlab import tasks
from sgdlab.data import preparing
from sgdlab.runs import resolve
from sgdlab.runs import tasks as jobs_tasks
from sgdlab.runs.sweep import Noted, within
from sgdlab.runs.work import trained_by


def config_of(*, seed: int, epochs: float = 1.0):
    """The configuration that `trained` trains; as some do, it asks for the size of the data, which are not there."""
    paper = cifar10_resnet20.get_config()
    assert resolve(paper).data.batches_per_epoch == 390
    config = tiny.config(epochs=epochs)
    config.seed = seed
    return config


@says_what_it_trains(config_of)
def trained(*, seed: int, epochs: float = 1.0) -> dict:
    """Is never called: a dry run does nothing."""
    raise AssertionError("a dry run does no run")


def configs_of(*, seeds: list[int]):
    """The configurations that `trained_at_once` trains."""
    return [config_of(seed=seed) for seed in seeds]


@says_what_it_trains(configs_of)
def trained_at_once(*, seeds: list[int]) -> dict:
    """Is never called, too."""
    raise AssertionError("a dry run does no run")


@pytest.fixture(autouse=True)
def no_data(monkeypatch, tmp_path):
    """A machine on which no data set is prepared."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))


def test_stand_ins_have_the_sizes_of_the_papers_data():
    with stand_ins.used():
        resnet20, resnet50 = cifar10_resnet20.get_config(), imagenet_resnet50.get_config()
        language = wikitext103_transformer_xl.get_config()
        # Barkai et al. 2020: 160 epochs of 390 batches; 450,360 gradients; 200,000 gradients.
        assert resolve(resnet20).num_gradients == 160 * 390
        assert resolve(resnet50).num_gradients == 450_360
        assert resolve(language).num_gradients == 200_000
        assert (
            resolve(resnet20).data.dataset.preprocess.augment is not None
        )  # what is done to images is timed with them
        assert resolve(resnet50).data.dataset.image_shape == (224, 224, 3)
        assert {stand_ins.missing(config) for config in (resnet20, resnet50, language)} == {
            "cifar10", "imagenet", "wikitext103",
        }  # fmt: skip
    assert stand_ins.missing(digits.get_config()) is None
    with pytest.raises(ValueError, match="cifar10"):  # outside of the block, data are what they are
        _ = resolve(resnet20).data.dataset


def test_what_is_prepared_is_not_missing(tmp_path, monkeypatch):
    folder = preparing.directory(None) / "cifar10" / "3.0.2"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("{}")
    assert stand_ins.missing(cifar10_resnet20.get_config()) is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["classification", "density", "language"])
def test_shapes_of_parameters_are_those_of_a_run(kind):
    config = tiny.config()
    if kind == "density":
        config.network.kind = "pixelcnn"
        config.network.pixelcnn.update({"layers": 1, "width": 4, "head": 8})
    elif kind == "language":
        config = wikitext103_transformer_xl.get_config("tiny")
    real, dataset = jobs_tasks.task_of(resolve(config)), resolve(config).data.dataset
    shapes = cost.abstract_task(resolve(config))
    assert real.kind == shapes.kind == tasks.TASKS[kind]
    assert cost.bytes_of(real.params) == cost.bytes_of(shapes.params) > 0
    assert cost.bytes_of(real.local) == cost.bytes_of(shapes.local)
    speed = cost.timed(config)
    assert speed.timed == speed.batch == config.batch_size  # small batches are timed whole
    assert speed.parameters == cost.bytes_of(real.params)
    # A run is its gradients, and its evaluations at a third of the time: those of its test set, then of both.
    examples = (config.evaluations + 1) * (config.test_examples or len(dataset.test))
    examples += config.train_examples or len(dataset.train)
    expected = speed.seconds * (resolve(config).num_gradients + examples / config.batch_size / 3)
    assert cost.seconds_of(config, speed) == pytest.approx(expected)


def test_a_part_of_a_large_batch_is_timed_and_says_so(monkeypatch):
    whole = cost.timed(tiny.config(network__mlp__widths=(256, 256)))
    monkeypatch.setattr(cost, "_OPERATIONS", 4e6)  # of 32 examples with half a million operations each
    part = cost.timed(tiny.config(network__mlp__widths=(256, 256)))
    assert whole.timed == 32 > part.timed >= 2
    assert f"from {part.timed} of 32 examples" in str(part)
    assert part.parameters == whole.parameters


@pytest.mark.parametrize(("method", "copies"), [("gap_aware", 38), ("dana_gap_aware", 70)])
def test_memory_counts_the_versions_of_the_workers_and_the_rules_state(method, copies):
    """The copies that configs/imagenet_resnet50.py computes for 32 workers, besides the data."""
    config = tiny.config(method=method, cluster__num_workers=32, epochs=10.0)
    speed = cost.Speed(1e-3, 32, 32, cost.bytes_of(cost.abstract_task(resolve(config)).params), 0.0)
    splits = resolve(config).data.dataset
    data = splits.train.pixels.nbytes + splits.test.pixels.nbytes
    assert (cost.memory_of(config, speed) - data) / speed.parameters == pytest.approx(copies, abs=4)


def test_a_dry_run_counts_every_sweep_that_is_prepared_and_does_nothing(declare, tmp_path, capsys):
    def swept() -> Output:
        """Sweeps."""
        sweeps = Sweep({}, {"value": range(12)}, work=doubled), Sweep({}, {"seed": range(3)}, work=trained)
        prepare(*sweeps)
        return Output(sweeps[0].table().assign(ours=1, paper=None))

    made = declare(swept)
    with within(Session(tmp_path, jobs=1)):
        Sweep({}, {"value": [3, 5, 7, 11, 13]}, work=doubled).records()  # four of the twelve
    before = sorted(tmp_path.rglob("*.jsonl"))
    foreseen = dry.foresee(made, "laptop", {}, Session(tmp_path, jobs=1))
    assert (len(foreseen.noted.found), len(foreseen.noted.missing)) == (4, 8 + 3)
    capsys.readouterr()
    assert command.answer([made.name, f"--workdir={tmp_path}", "--dry_run", "--jobs=1"]) == 0
    seen = capsys.readouterr().out
    gradients = 3 * 44  # seeds, and an epoch of 1437 examples by 32
    assert f"11 runs to do, 4 found finished; {gradients} gradients." in seen
    assert sorted(tmp_path.rglob("*.jsonl")) == before
    assert not (tmp_path / made.name).exists()
    speeds = {file: file.stat().st_mtime_ns for file in tmp_path.glob("speeds/*.json")}
    assert len(speeds) == 1
    costs = dry.Costs(foreseen.noted.missing, Session(tmp_path, jobs=1))
    items = {item.gradients: item for item in costs.items(foreseen.noted.missing)}
    (speed,) = (json.loads(file.read_text()) for file in speeds)
    with stand_ins.used():
        config = config_of(seed=0)
    assert items[gradients].seconds == pytest.approx(3 * cost.seconds_of(config, cost.Speed(**speed)))
    finished = [json.loads(file.read_text().splitlines()[-1])["compute_seconds"] for file in before]
    assert items[0].seconds == pytest.approx(8 * np.mean(finished))  # as long as those that are finished
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("speeds/*.json")} == speeds  # timed once


def test_all_counts_runs_that_figures_share_once(tmp_path):
    noted = [Noted(), Noted()]
    for each, seeds in zip(noted, ([0, 1], [1, 2]), strict=True):
        runs = Sweep({}, {"seed": seeds}, work=trained).runs
        each.missing.update({run.key: (trained, run) for run in runs})
    foreseen = [dry.Foreseen(f"gossip.{number}", each, False) for number, each in enumerate(noted)]
    text = dry.report_all(foreseen, Session(tmp_path, jobs=1))
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows["gossip.0"][2:4] == rows["gossip.1"][2:4] == ["2", "88"]
    assert rows["all, shared runs once"][5:7] == ["3", "132"]


def test_data_that_are_missing_are_no_obstacle_and_are_named(declare, tmp_path, capsys):
    def swept() -> Output:
        """Sweeps."""
        config = cifar10_resnet20.get_config()
        config.network.kind, config.network.mlp.widths = "mlp", (4,)
        return Output(Sweep(config, {"seed": range(2)}).table())

    made = declare(swept)
    assert command.answer(["all", f"--workdir={tmp_path}", "--dry_run", "--jobs=1"]) == 0
    seen = capsys.readouterr().out
    assert "cifar10 (`sgdlab data cifar10`)" in seen
    assert f"{2 * 62_400:,}" in seen
    assert command.answer([made.name, f"--workdir={tmp_path}", "--dry_run", "--jobs=1"]) == 0
    assert "cifar10 (`sgdlab data cifar10`)" in capsys.readouterr().out


@pytest.mark.machines
def test_every_figure_of_the_papers_own_size_is_foreseen_without_data(tmp_path):
    """Configurations are made, and runs counted: none needs data that are not there, or fails."""
    found = [made for made in figures.figures() if "paper" in made.scales]
    assert len(found) > 25
    for made in found:
        foreseen = dry.foresee(made, "paper", {}, Session(tmp_path, jobs=1))
        assert foreseen.error == "", made.name
        assert foreseen.whole == (not foreseen.noted.missing), made.name  # nothing is finished here
    assert not (tmp_path / "runs").exists()


def test_a_figure_whose_runs_are_finished_says_so_and_one_that_fails_keeps_no_other(declare, tmp_path):
    def finished() -> Output:
        """Sweeps."""
        return Output(Sweep({"value": 1}, work=tripled).table().assign(ours=1, paper=None))

    made, session = declare(finished), Session(tmp_path, jobs=1)
    with within(session):
        Sweep({"value": 1}, work=tripled).records()
    foreseen = dry.foresee(made, "laptop", {}, session)
    assert foreseen.whole
    assert "All of its 1 runs are finished" in dry.report(foreseen, session, "9 s")

    def broken() -> Output:
        """Fails."""
        raise KeyError("one")

    foreseen = dry.foresee(declare(broken), "laptop", {}, session)
    assert "KeyError" in foreseen.error
    assert foreseen.error in dry.report_all([foreseen], session)


def test_a_work_says_which_configuration_it_trains():
    (run,) = Sweep({"seed": 3, "epochs": 2.0}, work=trained).runs
    with stand_ins.used():
        (config,) = trained_by(trained, run.settings)
        assert config.to_dict() == config_of(seed=3, epochs=2.0).to_dict()
        assert [config.seed for config in trained_by(trained_at_once, {"seeds": [4, 2]})] == [4, 2]
    assert trained_by(doubled, {"value": 1}) == []


def missing_of(*sweeps):
    """Return what a figure foresees that asks for the runs of sweeps, none of which is finished."""
    noted = Noted()
    for sweep in sweeps:
        noted.missing.update({run.key: (sweep.work, run) for run in sweep.runs})
    return dry.Foreseen("gossip.several", noted, False)


def test_a_run_of_several_configurations_has_the_gradients_of_all_and_holds_all(tmp_path):
    session = Session(tmp_path, jobs=1)
    foreseen = missing_of(Sweep({}, {"seeds": [[0, 1, 2], [3]]}, work=trained_at_once))
    (item,) = dry.Costs(foreseen.noted.missing, session).items(foreseen.noted.missing)
    assert (item.runs, item.gradients) == (2, 4 * 44)
    with stand_ins.used():
        config = config_of(seed=0)
        splits = resolve(config).data.dataset
        data = splits.train.pixels.nbytes + splits.test.pixels.nbytes
        assert item.seconds == pytest.approx(4 * cost.seconds_of(config, item.speed))
        assert item.memory - data == pytest.approx(3 * (cost.memory_of(config, item.speed) - data))


def test_what_is_not_known_is_said_and_is_no_zero(tmp_path):
    session = Session(tmp_path, jobs=1)
    unknown = missing_of(Sweep({}, {"value": range(5)}, work=doubled))
    for text in (dry.report(unknown, session, "9 s"), dry.report_all([unknown], session)):
        assert "Computing: 5 runs whose time is unknown" in text
        assert "0.0 s" not in text
        assert " 0 gradients" not in text
    both = missing_of(Sweep({}, {"value": range(5)}, work=doubled), Sweep({}, {"seed": range(3)}, work=trained))
    for text in (dry.report(both, session, "9 s"), dry.report_all([both], session)):
        assert ", and 5 runs whose time is unknown" in text
    assert "132 gradients." in dry.report(both, session, "9 s")


def test_the_table_of_a_dry_run_is_empty_for_a_figure_without_runs(tmp_path):
    foreseen = dry.Foreseen("gossip.closed", Noted(), True)
    assert dry.report(foreseen, Session(tmp_path), "1 s").startswith("It needs no runs")
    assert pd.Series(dry.report_all([foreseen], Session(tmp_path)).splitlines()).str.startswith("gossip.closed").any()
