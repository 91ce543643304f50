"""A rule in a custom file, as `--parts` takes it: first mistakes, edits, children, and what a run leaves."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
from lib import undrawn

from sgdlab.commands import compare, train
from sgdlab.runs import configuration, methods, parts

ROOT = pathlib.Path(__file__).parents[2]
TINY = (
    "--config.epochs=1.0",
    "--config.batch_size=32",
    "--config.evaluations=4",
    "--config.network.kind=mlp",
    "--config.network.mlp.widths=(8,)",
    "--config.target=0.2",
    "--num_workers=4",
    "--seeds=1",
)
RULE = '''
import jax, jax.numpy as jnp, optax
from sgdlab.registry import RULES
from {helper} import power


def by_root_delay(cap):
    """Divides by the root of the delay."""

    def update(updates, state, params=None, *, delay=1, **extra_args):
        return jax.tree.map(lambda u: u / {minimum}(delay, cap) ** power(), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


@RULES.register("{name}", title="Root delay")
def root_delay(*, learning_rate, cap: int = {cap}):
    return optax.chain(by_root_delay(cap), optax.scale_by_learning_rate(learning_rate))
'''


@pytest.fixture(name="own")
def file_of_ones_own(tmp_path, monkeypatch):
    """Writes the parts file and the module beside it; what they register is forgotten in the end."""
    for registry in configuration.FAMILIES:
        monkeypatch.setattr(registry, "_parts", dict(registry))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(*, minimum="jnp.minimum", power="0.5", comment="", name="root_delay", cap=16):
        for module in set(sys.modules) - before:
            if str(tmp_path) in (getattr(sys.modules[module], "__file__", None) or ""):
                del sys.modules[module]
        helper = f"helper_of_{tmp_path.name}"
        (tmp_path / f"{helper}.py").write_text(f"def power():\n    return {power}  # {comment}\n")
        file = tmp_path / f"parts_of_{tmp_path.name}.py"
        file.write_text(RULE.format(helper=helper, minimum=minimum, name=name, cap=cap))
        return file

    yield write
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """No test looks at one."""
    undrawn.leave_undrawn(monkeypatch)


def finished(path):
    """The last record of each run, by what its name says."""
    files = path.glob("metrics/*.jsonl")
    return {file.stem.rpartition("-")[0]: json.loads(file.read_text().splitlines()[-1]) for file in files}


@pytest.mark.full
def test_an_edited_rule_is_run_anew_and_all_else_is_left(call, own, tmp_path):
    where = f"--workdir={tmp_path / 'runs'}"
    line = (compare, *TINY, "--methods=asgd,root_delay", "--processes=1", where)
    code, output, errors = call(*line, f"--parts={own()}")
    assert code == 0, errors
    assert "Root delay" in (tmp_path / "runs/table.md").read_text()
    first = finished(tmp_path / "runs")
    code, output, errors = call(*line, f"--parts={own(comment='another comment')}")
    assert code == 0, errors
    assert "3 runs found finished" in output
    code, output, errors = call(*line, f"--parts={own(power='0.25')}")  # of the module beside it
    assert code == 0, errors
    assert "1 run to do, 2 found; 1 of them anew, since their code or files have changed (rule)" in output
    second = finished(tmp_path / "runs")
    changed = {name for name in first if first[name]["train_loss"] != second[name]["train_loss"]}
    assert changed == {"root_delay-n4-seed0"}
    (aside,) = (tmp_path / "runs/metrics/superseded").iterdir()
    assert json.loads(aside.read_text().splitlines()[-1]) == first["root_delay-n4-seed0"]
    code, output, _ = call(*line, f"--parts={own(power='0.25')}", "--rerun=asgd")
    assert "1 run to do, 2 found\n" in output
    assert len(list((tmp_path / "runs/metrics/superseded").iterdir())) == 2
    code, output, errors = call(*line, f"--parts={own(cap=3, power='0.25')}")  # another default: another configuration
    assert code == 0, errors
    assert "1 run to do, 2 found\n" in output
    assert len(list((tmp_path / "runs/metrics/superseded").iterdir())) == 2  # the run with the other default stays
    caps = [
        json.loads(file.read_text().splitlines()[0])["config"]["rule"]["root_delay"]["cap"]
        for file in (tmp_path / "runs/metrics").glob("root_delay-*.jsonl")
    ]
    assert sorted(caps) == [3, 16]


@pytest.mark.full
def test_one_run_of_an_edited_rule_is_made_anew(call, own, tmp_path):
    line = (train, *TINY[:-2], "--config.method=root_delay", f"--workdir={tmp_path / 'one'}")
    code, _, errors = call(*line, f"--parts={own()}")
    assert code == 0, errors
    assert "nothing had to be run" in call(*line, f"--parts={own()}")[1]
    output = call(*line, f"--parts={own(power='1.0')}")[1]
    assert "The rule of the run" in output
    assert len(list((tmp_path / "one/metrics/superseded").iterdir())) == 1
    code, output, errors = call(*line, f"--parts={own(power='1.0')}", "--rerun")
    assert code == 0, errors
    assert "of virtual time: test loss" in output


def test_an_error_in_a_rule_is_shown_with_its_line(call, own, tmp_path):
    file = own(minimum="min")
    code, _, errors = call(
        train, *TINY[:-2], "--config.method=root_delay", f"--parts={file}", f"--workdir={tmp_path}/a"
    )
    assert code == 1
    assert_names_the_line(errors, file)


@pytest.mark.full
def test_children_know_the_parts_and_their_errors_are_shown_too(call, own, tmp_path, monkeypatch):
    """Parts are a rule and a preset, each in a file."""
    for known in (methods.OWN, methods._modules):
        monkeypatch.setitem(known, "mine", None)  # so that it is forgotten in the end
        del known["mine"]
    presets = tmp_path / f"presets_of_{tmp_path.name}.py"
    presets.write_text(
        "from sgdlab.runs import register_method\n"
        "entries = {'gradients_per_update': 4}\n"
        "register_method('mine', protocol='softsync', rule='asgd', title='Softsync of four', entries=entries)\n"
    )

    def in_processes(*files):
        files = ",".join(map(str, files))
        where = f"--workdir={tmp_path / 'runs'}"
        answer = call(compare, *TINY, "--methods=root_delay,mine", "--processes=2", f"--parts={files}", where)
        assert parts.can_be_imported()  # else all runs were made here
        return answer

    file = own(minimum="min")
    code, _, errors = in_processes(file, presets)
    assert code == 1
    assert_names_the_line(errors, file)
    code, output, errors = in_processes(own(), presets)
    assert code == 0, errors
    assert "Root delay" in output
    assert "Softsync of four" in output


def assert_names_the_line(errors, file):
    text = file.read_text().splitlines()
    number = next(i for i, line in enumerate(text, start=1) if "min(delay, cap)" in line)
    said = errors[errors.index("error: root_delay") :]
    assert f"{file}, line {number}" in said
    assert text[number - 1].strip() in said
    assert "TracerBoolConversionError" in said
    assert "killed" not in errors
    assert "Traceback (most recent call last)" in errors


@pytest.mark.full
def test_a_killed_run_leaves_its_records_and_is_not_finished(call, tmp_path):
    """The kill comes from inside, behind the second evaluation of the first run."""
    flags = [
        *TINY,
        "--methods=asgd",
        "--processes=1",
        "--equal=gradients",
        "--seeds=1",
        f"--workdir={tmp_path / 'runs'}",
    ]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_BEHIND_THE_SECOND_EVALUATION, *flags],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr
    (left,) = (tmp_path / "runs/metrics/under_way").glob("*.jsonl")
    records = [json.loads(line) for line in left.read_text().splitlines()]
    assert [record["kind"] for record in records] == ["run", "evaluation", "evaluation"]
    assert records[0]["config"]["epochs"] == 1.0
    assert not finished(tmp_path / "runs")
    code, output, errors = call(compare, *flags)
    assert code == 0, errors
    assert "2 runs to do\n" in output
    assert len(finished(tmp_path / "runs")) == 2
    assert not (tmp_path / "runs/metrics/under_way").exists()
    (whole,) = (tmp_path / "runs/metrics").glob("asgd-n4-seed0-*.jsonl")
    whole = whole.read_text().splitlines()
    assert [json.loads(line)["kind"] for line in whole] == ["run", *["evaluation"] * 5, "summary"]


KILLED_BEHIND_THE_SECOND_EVALUATION = """
import os, signal, sys
from sgdlab import runs
from sgdlab.commands import compare, launch
count, evaluation = 0, runs.records.evaluation
def counted(*arguments):
    global count
    count += 1
    if count == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluation(*arguments)
runs.records.evaluation = counted
sys.argv[0] = "compare"
compare.COMMAND.run()
"""


def test_a_name_that_is_taken_is_the_mistake_of_the_file(call, own, tmp_path):
    code, _, errors = call(train, "--config.epochs=1.0", f"--parts={own(name='asgd')}", f"--workdir={tmp_path}/a")
    assert code == 2
    (line,) = errors.splitlines()
    assert re.fullmatch(rf"error: --parts={tmp_path}\S*, line \d+: name='asgd' must be another: .*", line)


def test_a_file_is_imported_anew_where_it_or_one_beside_it_has_changed(own, tmp_path):
    file = own()
    parts.load(str(file))
    first = sys.modules[file.stem]
    parts.load(str(file))
    assert sys.modules[file.stem] is first
    helper = next(tmp_path.glob("helper*.py"))
    helper.write_text("def power():\n    return 3\n")
    parts.load(str(file))
    assert sys.modules[file.stem] is not first
    assert sys.modules[file.stem].power() == 3


@pytest.mark.parametrize(("name", "text"), [("json.py", ""), ("my.parts.py", ""), ("none.py", None), ("text.txt", "")])
def test_what_is_no_file_of_parts_is_refused(name, text, tmp_path):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=f"--parts=.*{name} must be"):
        parts.load(str(tmp_path / name))
