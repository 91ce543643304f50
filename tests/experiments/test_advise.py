"""The command `advise`: help without JAX, and mistakes in one line; test_installed.py runs the whole command."""

import subprocess
import sys

import pytest

from sgdlab.commands import advise


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--trace"),
        (("--trace=nothing.csv",), "--trace=nothing.csv must be a file"),
        (("nothing.csv",), "--trace=nothing.csv must be a file"),
        (("small.csv", "other.csv"), "other.csv"),
        (("small.csv", "--trace=small.csv"), "small.csv"),
        (("small.csv", "--recording=small.csv"), "small.csv"),
        (("small.csv", "--model=maybe"), "--model=maybe must be"),
        (("small.csv", "--refit=0"), "--refit=0 must be"),
        (("small.csv", "--unit=weeks"), "--unit=weeks must be"),
        (("nothing.csv", "--what_if"), "--trace=nothing.csv must be a file"),
        (("--trace=small.csv", "--steps=0"), "--steps=0 must be"),
        (("--trace=small.csv", "--seed=-1"), "--seed=-1 must be"),
        (("--trace=small.csv", "--seed=few"), "--seed=few must be"),
        (("--trace=small.csv", "--train_share=1.5"), "--train_share=1.5 must be"),
        (("--trace=small.csv", "--workdir=small.csv"), "--workdir=small.csv must be"),
        (("--trace=small.csv", "--config.seed=1"), "--config.seed=1"),
        (("small.csv", "--parameters=0"), "--parameters=0.0 must be a finite number above 0"),
        (("small.csv", "--parameters=7e9"), "--parameters=7e+09 must be left out"),
        (("small.csv", "--what_if", "--parameters=7e9"), "--parameters must be left out beside --what_if"),
        (("small.csv", "--dtype=bf16"), "--dtype=bf16 must come with --parameters"),
        (("small.csv", "--parameters=7e9", "--dtype=int3"), "--dtype=int3 must be"),
        (("small.csv", "--rejoin_seconds=-1"), "--rejoin_seconds=-1.0 must be a finite number at least 0"),
        (("small.csv", "--max_false_drop=0.1"), "--max_false_drop=0.1 must come with --timeouts"),
        (("small.csv", "--timeouts", "--max_false_drop=1"), "--max_false_drop=1.0 must be a finite number above 0"),
        (("small.csv", "--timeouts", "--what_if"), "--timeouts must be left out beside --what_if"),
        (("--follow=small.csv", "--rejoin_seconds=9"), "--rejoin_seconds must be left out beside --follow"),
        (("small.csv", "--checkpoint_seconds=-1"), "--checkpoint_seconds=-1.0 must be a finite number above 0"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(call, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.csv").write_text("a,b\n" + "1.5,2.5\n" * 20)
    code, _, errors = call(advise, *arguments)
    assert code == 2
    (line,) = errors.strip().splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert [path.name for path in tmp_path.iterdir()] == ["small.csv"]


@pytest.mark.parametrize("content", [None, "a,b\n1.5,-2.5\n"])
def test_what_is_wrong_with_a_trace_is_said_before_jax_is_imported(content, tmp_path):
    if content is not None:
        (tmp_path / "bad.csv").write_text(content)
    script = (
        "import sys; sys.argv[1:] = ['advise', 'bad.csv']; from sgdlab.commands import console\n"
        "try: console.main()\n"
        "finally: print([m for m in ('jax', 'numpyro', 'matplotlib', 'flax') if m in sys.modules])"
    )
    command = [sys.executable, "-c", script]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert answer.returncode == 2
    assert answer.stdout == "[]\n"
    assert answer.stderr.count("bad.csv") == 1


def test_help_lists_the_flags_and_imports_no_jax():
    script = (
        "import sys; sys.argv[1:] = ['advise', '--help']; from sgdlab.commands import console\n"
        "try: console.main()\n"
        "finally: print([m for m in ('jax', 'numpyro', 'matplotlib', 'pyarrow') if m in sys.modules], file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stderr == "[]\n"
    for flag in ("--trace", "--train_share", "--steps", "--seed", "--workdir", "--what_if", "--follow", "--refit"):
        assert f"{flag}:" in answer.stdout
