"""`sgdlab timeline` on recorded steps, and of several methods: the schedules are those of the library."""

import numpy as np
import pytest

from sgdlab import predictors, protocols
from sgdlab.commands import flag_names
from sgdlab.errors import UsageError
from sgdlab.runs.experiment import Seeds
from sgdlab.schedule import Schedule
from sgdlab.traces import Recording

# ml_collections loads a configuration's file by an importer's method that Python is about to drop.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)
STEPS, WORKERS, FIRST = 60, 5, 100


@pytest.fixture(scope="module", name="runtimes")
def runtimes_of_trace():
    return np.random.default_rng(0).gamma(20, 0.05, (STEPS, WORKERS))


@pytest.fixture(name="draw")
def draw_beside_a_trace(call, tmp_path, runtimes):
    times = runtimes.copy()
    times[4, 1] = np.nan  # an incomplete step, which is not replayed
    names = tuple(f"w{i}" for i in range(WORKERS))
    Recording(times, FIRST + np.arange(STEPS), names).save(tmp_path / "trace.csv")
    return lambda *arguments: call("timeline", *arguments, "--workdir=drawn")


def same(path, expected):
    found = Schedule.load(path)
    for column in ("worker", "read", "update", "started", "arrived", "applied"):
        np.testing.assert_array_equal(getattr(found, column), getattr(expected, column))
    return found


def test_methods_on_the_first_recorded_steps(draw, runtimes, tmp_path):
    code, output, errors = draw("trace.csv", "--methods=synchronous,backup_workers", "--steps=12")
    assert code == 0, errors
    complete = np.delete(runtimes, 4, axis=0)[:12]
    same(tmp_path / "drawn/schedule_synchronous.npz", protocols.synchronous(complete))
    made = same(tmp_path / "drawn/schedule_backup_workers.npz", protocols.backup_workers(complete))
    used, dropped = (int(kind.sum()) for kind in (made.used(), made.dropped()))
    assert f"steps 100 to 112: {used} gradients used, {dropped} dropped" in output
    for name in ("timeline.png", "timeline.svg", "trace_synchronous.json", "trace_backup_workers.json"):
        assert (tmp_path / "drawn" / name).stat().st_size > 0


def test_a_later_step_is_drawn_with_what_the_protocol_knows_by_then(draw, runtimes, tmp_path):
    code, output, errors = draw(
        "--trace=trace.csv",
        "--first_step=140",
        "--steps=10",
        "--config.method=cutoff",
        "--config.predictor.kind=deadline",
        "--config.protocol.cutoff.window=8",
    )
    assert code == 0, errors
    complete = np.delete(runtimes, 4, axis=0)  # step 140 is row 39 of them
    seed = Seeds(0).of("protocol")  # of the compute times of workers that were interrupted
    made = protocols.cutoff(complete[:49], predictor=predictors.Deadline(), window=8, seed=seed)
    same(tmp_path / "drawn/schedule.npz", made)
    start = made.applied[38, 0]
    drawn = made.started >= start
    used, dropped = (int((kind[:, 0] & drawn).sum()) for kind in (made.used(), made.dropped()))
    assert dropped > 0
    assert used + dropped == 10 * WORKERS
    assert f"steps 140 to 149: {used} gradients used, {dropped} dropped" in output


def test_messages_of_several_local_steps_are_called_so_and_take_their_time(draw, runtimes, tmp_path):
    code, output, errors = draw("trace.csv", "--config.method=synchronous", "--config.local.steps=3", "--steps=12")
    assert code == 0, errors
    complete = np.delete(runtimes, 4, axis=0)[:12]
    made = same(tmp_path / "drawn/schedule.npz", protocols.synchronous(complete.reshape(4, 3, WORKERS).sum(axis=1)))
    assert made.describe("message") in output
    assert f"{made.used().sum()} messages used, 0 dropped" in output
    assert "gradients" not in output
    svg = (tmp_path / "drawn/timeline.svg").read_text(encoding="utf-8")
    assert "messages/s" in svg
    assert "gradients/s" not in svg
    # Step 140 is row 39, the first of the 14th messages; two of each worker are drawn.
    later = ("--config.method=synchronous", "--config.local.steps=3", "--first_step=140", "--steps=6")
    _, output, _ = draw("trace.csv", *later)
    assert f"steps 140 to 145: {2 * WORKERS} messages used, 0 dropped" in output


def test_who_is_down_is_shown(call, tmp_path):
    flags = ("--config.cluster.num_workers=2", "--config.epochs=0.2", "--config.failures.kind=independent")
    code, _, errors = call("timeline", *flags, "--config.failures.independent.mean_up_hours=0.002", "--seconds=90")
    assert code == 0, errors
    assert "<!-- down -->" in (tmp_path / "runs/timeline/timeline.svg").read_text(encoding="utf-8")


def test_several_methods_on_the_configured_cluster(draw, tmp_path):
    code, _, errors = draw("--methods=synchronous,asgd,pull_gossip", "--config.epochs=0.02")
    assert code == 0, errors
    assert {path.name for path in (tmp_path / "drawn").glob("schedule*")} == {
        "schedule_synchronous.npz",
        "schedule_asgd.npz",
        "schedule_pull_gossip.npz",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("trace.csv", "--first_step=160"), "--first_step=160 must be at most 159"),
        (("trace.csv", "--config.cluster.num_workers=5"), "--config.cluster.num_workers must be left out"),
        (("trace.csv", "--config.epochs=2"), "--config.epochs must be left out"),
        (("trace.csv", "--schedule=x.npz"), "must be left out"),
        (("trace.csv", "--trace=trace.csv"), "must be left out"),
        (("trace.csv", "another.csv"), "'another.csv' must be left out"),
        (("--steps=3",), "--steps=3 must be left out"),
        (("nothing.csv",), "nothing.csv"),
        (("--methods=asgd", "asgd"), "--methods=asgd,asgd"),
    ],
)
def test_mistakes_are_one_line(draw, arguments, words):
    code, _, errors = draw(*arguments)
    (line,) = errors.strip().splitlines()
    assert code == 2
    assert words in line


def test_a_file_may_stand_anywhere_among_flags():
    arguments = ["a.csv", "--workdir", "here", "--config.replacement", "--parts=x.py"]
    assert flag_names.files_last(arguments) == ["--workdir", "here", "--config.replacement", "--parts=x.py", "a.csv"]
    flag_names.check(["a.csv"], configured=True, entries=list, positional=True)
    with pytest.raises(UsageError, match=r"'a\.csv' is not a flag"):
        flag_names.check(["a.csv"], configured=True, entries=list)
