"""The command `advise`: help without JAX, and mistakes in one line; test_installed.py runs the whole command."""

import subprocess
import sys

import pytest

from sgdlab.commands import advise, launch


@pytest.fixture(name="call")
def call_in_process(capsys, monkeypatch, tmp_path):
    """Runs the command here, in an empty directory: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        line = ["advise", *arguments]
        code = launch.answer(
            advise.main, advise.__doc__, line, configured=advise.CONFIGURED, define=advise.define_flags
        )
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--trace"),
        (("--trace=nothing.csv",), "--trace=nothing.csv must be a file"),
        (("nothing.csv",), "--trace=nothing.csv"),
        (("--trace=small.csv", "--steps=0"), "--steps=0 must be"),
        (("--trace=small.csv", "--seed=-1"), "--seed=-1 must be"),
        (("--trace=small.csv", "--seed=few"), "--seed=few must be"),
        (("--trace=small.csv", "--train_share=1.5"), "--train_share=1.5 must be"),
        (("--trace=small.csv", "--workdir=small.csv"), "--workdir=small.csv must be"),
        (("--trace=small.csv", "--config.seed=1"), "--config.seed=1"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(call, arguments, words, tmp_path):
    (tmp_path / "small.csv").write_text("a,b\n" + "1.5,2.5\n" * 20)
    code, _, errors = call(*arguments)
    assert code == 2
    (line,) = errors.strip().splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert [path.name for path in tmp_path.iterdir()] == ["small.csv"]


def test_help_lists_the_flags_and_imports_no_jax():
    script = (
        "import sys; sys.argv[1:] = ['advise', '--help']; from sgdlab.commands import console\n"
        "try: console.main()\n"
        "finally: print([m for m in ('jax', 'numpyro', 'matplotlib', 'pyarrow') if m in sys.modules], file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stderr == "[]\n"
    for flag in ("--trace", "--train_share", "--steps", "--seed", "--workdir"):
        assert f"{flag}:" in answer.stdout
