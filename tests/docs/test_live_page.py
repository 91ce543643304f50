"""Do what the page on live runs prints, at toy size.

Their gradients are computed again bit for bit: compiled as the workers' are, as in few folders (see conftest.py).
"""

import re

import pytest
from lib import pages

pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.mark.full
def test_what_was_recorded_can_be_replayed_as_it_says(tmp_path, capsys):
    lines = list(dict.fromkeys(pages.commands("docs/live.md")[:6]))  # the second one continues the first
    assert [line.split()[1] for line in lines] == ["live", "replay", "replay", "advise", "timeline"]
    with pages.directory_of_a_user(tmp_path) as here:
        for line in lines:
            if " advise " in line:  # it takes minutes
                continue
            assert pages.run(line.replace(" --serve", "")) == 0, capsys.readouterr().err
            (where,) = re.findall(r"--workdir=(\S+)", line)
            assert any((here / where).iterdir())
    assert "largest difference from the parameters of the live run: 0.0" in capsys.readouterr().out
