"""What the README does on real workers, as it is printed, at toy size.

Their gradients are computed again bit for bit: compiled as the workers' are, as in few folders (see conftest.py).
"""

import re

import pytest
from lib import readme

pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.mark.long("the README's live run, in processes")
def test_what_was_recorded_can_be_replayed_as_it_says(tmp_path, capsys):
    assert [line.split()[1] for line in readme.LIVE] == ["live", "replay", "replay", "timeline", "advise"]
    with readme.directory_with_the_files(tmp_path) as here:
        for line in readme.LIVE[:-1]:  # advise takes minutes
            assert readme.run(line) == 0, capsys.readouterr().err
            (where,) = re.findall(r"--workdir=(\S+)", line)
            assert any((here / where).iterdir())
    assert "largest difference from the parameters of the live run: 0.0" in capsys.readouterr().out
