"""The command lines: help, whole runs, continuing after a kill, and mistakes in one line with exit code 2."""

import json
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from lib import undrawn

from sgdlab.commands import compare, timeline, train

ROOT = pathlib.Path(__file__).parents[2]
MODULES = {"train": train, "compare": compare, "timeline": timeline}
TINY = (
    "--config.epochs=1.0",
    "--config.batch_size=32",
    "--config.optimizer.learning_rate=0.05",
    "--config.evaluations=2",
    "--config.network.kind=mlp",
    "--config.network.mlp.widths=(8,)",
    "--config.target=0.2",
)


@pytest.fixture(name="undrawn")
def without_pictures(monkeypatch):
    """For tests that look at none."""
    undrawn.leave_undrawn(monkeypatch)


def command(module, *args):
    return [sys.executable, "-m", f"experiments.{module}", *args]


def one_line(answer):
    code, _, errors = answer
    assert code == 2, errors
    (line,) = errors.strip().splitlines()
    return line


@pytest.mark.parametrize("name", MODULES)
def test_help_is_a_page(call, name):
    code, output, _ = call(MODULES[name], "--help")
    assert code == 0
    assert len(output.splitlines()) <= 52
    assert max(map(len, output.splitlines())) <= 120
    for words in (f"sgdlab {name}", "--workdir", "--parts", "dana_gap_aware", "--config.batch_size=8", "--help=all"):
        assert words in output
    assert ("--config.method=" in output) == (name != "compare")  # which has --methods


@pytest.mark.parametrize("name", MODULES)
def test_help_on_all_lists_every_entry_with_its_meaning(call, name):
    code, output, _ = call(MODULES[name], "--help=all")
    assert code == 0
    # What an entry means stands beside it, from its part's own docstring or from the configuration's comments.
    for entry in ("protocol.bounded_staleness.bound=2", "batch_size=8", "rule.kind=", "optimizer.learning_rate=0.0125"):
        assert re.search(rf"--config\.{re.escape(entry)} +\w", output), entry
    entries = [line.split() for line in output.splitlines() if line.strip().startswith("--config.")]
    assert len(entries) > 60
    assert not [words for words in entries if len(words) < 2]


@pytest.mark.parametrize("name", ["train", "compare", "timeline", "advise", "live", "replay", "certificate"])
def test_wrong_flags_are_answered_before_anything_heavy_is_imported(name):
    script = (
        "import runpy, sys\n"
        f"sys.argv = ['x', '{name}', '--wrokdir=a']\n"
        "try:\n"
        "    runpy.run_module('sgdlab', run_name='__main__')\n"
        "except SystemExit as ended:\n"
        "    heavy = ('jax', 'flax', 'optax', 'numpyro', 'tensorflow_datasets', 'matplotlib', 'scipy', 'sklearn')\n"
        "    print(ended.code, [name for name in heavy if name in sys.modules])\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert answer.stdout == "2 []\n", answer.stderr
    assert answer.stderr == "error: --wrokdir is not a flag; did you mean --workdir=a?\n"


@pytest.mark.parametrize(
    ("name", "flag", "words"),
    [
        ("train", "--config.method=sgd", "--config.method=sgd must be one of"),
        ("train", "--config.cluster.num_workers=0", "--config.cluster.num_workers=0 must be"),
        ("train", "--config.optimizer.learning_rate=nan", "--config.optimizer.learning_rate=nan must be"),
        ("train", "--config.batch_size=5000", "--config.batch_size=5000 must be at most 1437"),
        ("train", "--config.clutser.num_workers=3", "--config.clutser.num_workers=3 must be an entry"),
        ("train", "--config.batch_size=many", "--config.batch_size=many must be a whole number"),
        ("train", "--config.rate.steps=(3.0,1.0)", "--config.rate.steps=(3.0, 1.0) must be rising"),
        ("train", "--config.foo=1", "--config.foo=1 must be an entry of the configuration"),
        ("compare", "--config.seed=3", "--config.seed=3 must be left out: this command sets it by --seeds"),
        ("compare", "--seeds=x", "--seeds=x must be a positive integer"),
        ("compare", "--method=asgd", "--method is not a flag; did you mean --methods=asgd?"),
        ("train", "--learning_rate=0.1", "did you mean --config.optimizer.learning_rate=0.1?"),
        ("train", "--config.learning_rate=0.1", "did you mean --config.optimizer.learning_rate=0.1?"),
        ("train", "--config.num_workers=8", "did you mean --config.cluster.num_workers=8?"),
        ("compare", "--methods asgd gap_aware", "separated by commas: --methods=asgd,gap_aware"),
        ("compare", "--methods=asgd --rerun=sgd", "--rerun=sgd must be one of"),
        ("train", "--writers=tensorbord", "--writers=tensorbord must be one of tensorboard, wandb"),
        ("train", "--parts=nothing.py", "--parts=nothing.py must be a Python file"),
        ("train", "asgd", "'asgd' is not a flag"),
        ("train", "--config.data.npz.path=mine.npz", "--config.data.npz.path has no effect: data.kind is digits"),
        ("train", "--config.protocol.timeout.seconds=9.0", "set --config.protocol.kind=timeout"),
        ("train", "--config.optimizer.adam_learning_rate=0.1", "no rule of these runs takes it"),
        (
            "train",
            "--config.method=adam --config.optimizer.learning_rate=1e4",
            "no rule of these runs takes it; set --config.optimizer.adam_learning_rate",
        ),
        ("train", "--config.network=mlp", "did you mean --config.network.kind=mlp?"),
        ("train", "--config.epoch=3", "did you mean --config.epochs=3?"),
        ("train", "--config.lr=3", "did you mean --config.optimizer.learning_rate=3?"),
        ("compare", "--methods=asgd,dana --config.rule.kind=gap_aware", "are both asynchronous+gap_aware"),
        (
            "compare",
            "--methods=asgd --rerun=asgd --tune=2 --config.target=0.5",
            "--rerun=asgd must be left out with --tune=2",
        ),
        ("compare", "--methods=asgd --rerun=dana", "--rerun=dana must be one of the methods that are compared: asgd"),
        ("train", "--config=configs/nothing.py", "configs/nothing.py"),
        ("compare", "--methods=gap_aware,sgd", "--methods=sgd must be one of"),
        ("compare", "--num_workers=4,none", "--num_workers=none must be"),
        ("compare", "--seeds=0", "--seeds=0 must be a positive integer"),
        (
            "compare",
            "--methods=asgd,backup_workers --config.protocol.backup_workers.backups=8",
            "--config.protocol.backup_workers.backups=8 must be",
        ),
        ("compare", "--sedes=3", "--sedes is not a flag; did you mean --seeds=3?"),
        ("train", "--config.rule.gap_aware.granularity=row", "--config.rule.gap_aware.granularity='row' must be"),
        ("train", "--config.rule.kind=dana --config.protocol.kind=softsync", "--config.rule.kind=dana"),
        ("train", "--config.cluster.num_workers=1000000000", "--config.cluster.num_workers=1000000000 with"),
        (
            "train",
            "--config.method=partial --config.protocol.partial.num_servers=1000",
            "--config.protocol.partial.num_servers=1000 must be",
        ),
        (
            "compare",
            "--config.protocol.partial.pull_at_least=1.1",
            "--config.protocol.partial.pull_at_least=1.1 must be",
        ),
        ("compare", "--config.cluster.kind=recorded", "--config.cluster.recorded.trace="),
        ("compare", "--sweep=learning_rate=0.1,0.2", "--sweep=learning_rate must be an entry of the configuration"),
        ("compare", "--sweep=batch_size=8,many", "--sweep=batch_size='many' must be of type int, as the entry is"),
        (
            "compare",
            "--sweep=rule.gap_aware.granularity=layer --methods=asgd",
            "--config.rule.gap_aware.granularity has no",
        ),
        ("timeline", "--methods=", "--methods= must name at least one method"),
        ("timeline", "--seconds=-1", "--seconds=-1.0 must be a finite number above 0"),
        ("timeline", "--schedule=nothing.npz", "--schedule=nothing.npz must be a file"),
        ("timeline", "--schedule=README.md", "--schedule=README.md must be a schedule"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(call, name, flag, words, tmp_path):
    line = one_line(call(MODULES[name], *flag.split(), f"--workdir={tmp_path / 'run'}"))
    assert words in line
    assert not (tmp_path / "run").exists()


def test_a_mistake_is_one_line_in_a_process_of_its_own(tmp_path):
    answer = subprocess.run(
        command("main", "--config.epochs=0", f"--workdir={tmp_path / 'run'}"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 2
    assert answer.stderr == "error: --config.epochs=0.0 must be a finite number above 0\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_refused_command_does_not_claim_its_directory(call, tmp_path):
    where = f"--workdir={tmp_path / 'runs'}"
    one_line(call(compare, *TINY, "--methods=softsync", "--num_workers=3", "--config.rule.kind=dana", where))
    code, output, errors = call(
        compare, *TINY, "--methods=asgd", "--num_workers=2", "--seeds=1", "--processes=1", where
    )
    assert code == 0, errors
    assert "ASGD" in output


def test_a_schedule_is_drawn_exported_and_drawn_again(call, tmp_path):
    for method, kind in (("partial", "Schedule: 8 workers"), ("push_gossip", "PeerSchedule: 8 nodes")):
        where = tmp_path / method
        code, drawn, errors = call(timeline, *TINY, f"--config.method={method}", f"--workdir={where}")
        assert code == 0, errors
        assert kind in drawn
        for name in ("timeline.png", "timeline.svg", "schedule.npz"):
            assert (where / name).stat().st_size > 0
        assert json.loads((where / "trace.json").read_text())["traceEvents"]
        _, again, _ = call(timeline, f"--schedule={where / 'schedule.npz'}", f"--workdir={where / 'again'}")
        assert again.splitlines()[0] == drawn.splitlines()[0]
        assert (where / "again/trace.json").read_text() == (where / "trace.json").read_text()


def test_one_run_and_the_same_again(call, tmp_path):
    where = f"--workdir={tmp_path / 'one'}"
    code, output, errors = call(train, *TINY, where)
    assert code == 0, errors
    assert "Gap-Aware, 8 workers: test accuracy" in output
    for name in ("config.json", "metrics/run.jsonl", "parameters.npz", "schedule.npz", "plots/training.png"):
        assert (tmp_path / "one" / name).stat().st_size > 0
    stored = json.loads((tmp_path / "one/config.json").read_text())
    assert stored["config"]["rule"]["kind"] == "gap_aware"
    assert "timeout" not in stored["config"]["protocol"]
    assert set(stored["made"]) == {"version", "jax", "device", "commit"}
    assert not (tmp_path / "one/metrics/under_way").exists()
    written = (tmp_path / "one/metrics/run.jsonl").read_text()
    _, again, _ = call(train, *TINY, where)
    assert "holds this run already" in again
    other = one_line(call(train, *TINY, where, "--config.seed=1"))
    assert "config.seed=0, not 1" in other
    assert (tmp_path / "one/metrics/run.jsonl").read_text() == written


@pytest.mark.usefixtures("undrawn")
def test_a_pair_of_a_protocol_and_a_rule_runs_and_is_named(call, tmp_path):
    line = (
        compare, *TINY, "--methods=asgd", "--num_workers=4", "--seeds=1", "--processes=1",
        "--config.protocol.kind=bounded_staleness", "--config.rule.kind=staleness_aware",
        f"--workdir={tmp_path / 'runs'}",
    )  # fmt: skip
    code, output, errors = call(*line)
    assert code == 0, errors
    # The same line has nothing to do, and another, of the same runs, is checked as ever.
    again = "Nothing to do: 2 runs and their report are up to date\n\n" + output[output.index("method ") :]
    assert call(*line) == (0, again, "")
    assert "--config.rule.dana.momentum" in one_line(call(*line, "--config.rule.dana.momentum=0.5"))
    assert "Staleness-Aware + Bounded staleness" in (tmp_path / "runs/table.md").read_text()
    assert len(list((tmp_path / "runs/metrics").glob("bounded_staleness+staleness_aware-n4-seed0-*.jsonl"))) == 1


@pytest.mark.full
@pytest.mark.usefixtures("undrawn")
def test_entries_are_swept(call, tmp_path):
    runs = tmp_path / "runs"
    arguments = (*TINY[:2], *TINY[3:], "--methods=asgd", "--num_workers=2", "--seeds=1", "--processes=1")
    arguments += ("--sweep=optimizer.learning_rate=0.01,0.05", "--sweep=network.kind=mlp,conv", f"--workdir={runs}")
    arguments = tuple(argument for argument in arguments if not argument.startswith("--config.network.kind"))
    code, output, errors = call(compare, *arguments, "--config.network.conv.channels=(2,4)")
    assert code == 0, errors
    assert "8 runs to do" in output
    assert "[8/8] asgd, 2 workers, learning_rate=0.05, kind=conv, seed 0: " in output or "kind=mlp" in output
    assert "the learning rate and network of its best test accuracy" in " ".join(output.split())
    rows = (runs / "sweep.csv").read_text().splitlines()
    assert rows[0].startswith("method,serial,num_workers,optimizer.learning_rate,network.kind,seeds")
    assert len(rows) == 1 + 8
    for name in ("sweep_optimizer_learning_rate.svg", "sweep_network_kind.png"):
        assert (runs / "plots" / name).exists()
    line = one_line(call(compare, *arguments, "--config.optimizer.learning_rate=0.1"))
    assert line == (
        "error: --config.optimizer.learning_rate must be left out: --sweep=optimizer.learning_rate gives it its values"
    )


@pytest.mark.sample(1)
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kind", ["exponential", "long_tailed", "regimes", "recorded"])
def test_every_cluster_is_compared_with_one_worker_of_its_own(call, kind, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("a,b,c,d\n" + "1.0,1.5,2.0,0.5\n1.5,1.0,1.0,2.5\n" * 8)
    entries = [f"--config.cluster.recorded.{entry}" for entry in (f"trace={trace}", "extend=bootstrap", "block=4")]
    entries = entries if kind == "recorded" else []
    code, output, errors = call(
        compare, *TINY, "--methods=synchronous,asgd", "--num_workers=4", "--seeds=1", "--processes=1",
        f"--config.cluster.kind={kind}", *entries, f"--workdir={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 0, errors
    assert "Single worker (NAG-ASGD)" in output
    (baseline,) = (tmp_path / "runs/metrics").glob("nag_asgd-n1-seed0-*.jsonl")
    run = json.loads(baseline.read_text().splitlines()[0])
    assert run["serial"]
    assert run["config"]["cluster"]["first_workers"] == 1
    if kind == "recorded":
        assert "bootstrap" in (tmp_path / "runs/table.md").read_text()
        assert "bootstrap" in (tmp_path / "runs/report.html").read_text()
        assert "gamma" not in (tmp_path / "runs/table.md").read_text()


@pytest.mark.full
def test_a_killed_comparison_continues_where_it_stopped(call, tmp_path):
    """The kill comes from inside, behind the third finished run: no clock decides."""
    runs = tmp_path / "runs"
    arguments = (*TINY, "--methods=asgd,gap_aware", "--num_workers=2", "--seeds=2", f"--workdir={runs}")
    arguments += ("--processes=1",)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_BEHIND_THE_THIRD, *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = {path: path.stat().st_mtime_ns for path in runs.glob("metrics/*.jsonl")}
    assert len(before) == 3
    total = 2 + 2 * 2
    half = next(iter(before))
    half.write_text('{"kind": "run"}\n')
    code, output, errors = call(compare, *arguments)
    assert code == 0, errors
    assert f"{total - 2} runs to do, 2 found" in output
    assert len(list(runs.glob("metrics/*.jsonl"))) == total
    assert all(path.stat().st_mtime_ns == at for path, at in before.items() if path != half)
    for name in ("table.md", "table.csv", "report.html"):
        assert (runs / name).stat().st_size > 0
    for name in ("standing", "loss", "staleness", "timeline"):
        for kind in ("png", "svg"):
            assert (runs / f"plots/{name}.{kind}").stat().st_size > 0
    page = (runs / "report.html").read_text()
    assert "Gap-Aware" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert 'src="data:image/svg+xml' in page
    assert "Nothing to do: 6 runs" in call(compare, *arguments)[1]


KILLED_BEHIND_THE_THIRD = """
import os, signal, sys
from sgdlab.commands import compare, launch
from sgdlab.runs import Store
write, count = Store.write, 0
def counted(self, *arguments):
    global count
    write(self, *arguments)
    count += 1
    if count == 3:
        os.kill(os.getpid(), signal.SIGKILL)
Store.write = counted
sys.argv[0] = "compare"
compare.COMMAND.run()
"""


def test_an_interrupted_comparison_stops_and_says_so(call, tmp_path, monkeypatch):
    """Ctrl-C, which Python turns into KeyboardInterrupt, in the middle of a run."""

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("sgdlab.runs.compare.finish", interrupted)
    code, _, errors = call(
        compare, *TINY, "--methods=asgd", "--num_workers=2", "--seeds=1", f"--workdir={tmp_path / 'runs'}"
    )
    assert code == 130
    assert "the same command continues where it stopped" in errors


def test_nothing_beside_the_baseline_is_refused(call, tmp_path):
    line = one_line(call(compare, "--methods=nag_asgd", "--num_workers=1", f"--workdir={tmp_path / 'runs'}"))
    assert line.startswith("error: --num_workers=1 with nag_asgd is the baseline itself")


def test_a_directory_that_cannot_be_written_is_one_line(call, tmp_path):
    (tmp_path / "file").write_text("")
    assert "must be a directory that can be written" in one_line(
        call(train, *TINY, f"--workdir={tmp_path / 'file' / 'x'}")
    )
