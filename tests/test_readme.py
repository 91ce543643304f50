"""The README's Python examples run."""

import pathlib
import re

import jax
import pytest

README = pathlib.Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs(example, capsys):
    jax.config.update("jax_enable_x64", False)
    exec(compile(example, str(README), "exec"), {})
    if "print" in example:
        assert "Schedule: " in capsys.readouterr().out
