"""Docstrings that begin with a noun clause are refused, by file and line."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/first_words.py"


def test_a_noun_clause_is_refused_and_a_verb_is_not(tmp_path):
    good = '"""Return."""\n\n\nclass A:\n    """Hold."""\n'
    bad = (
        '"""Tests."""\nA = 1\n"""How many."""\n\n\ndef f():\n    """Whether, or not."""\n\n'
        '    def g():\n        """What it is."""\n'
    )
    (tmp_path / "good.py").write_text(good)
    (tmp_path / "bad.py").write_text(bad)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "good.py", "bad.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert [line.split(": the docstring")[0] for line in done.stdout.splitlines()] == [
        "bad.py:3",
        "bad.py:7",
        "bad.py:10",
    ]
    assert not subprocess.run([sys.executable, str(SCRIPT), "good.py"], cwd=tmp_path, check=False).returncode
