"""A name of a package that is a module's too is what is named, in whatever order things are imported."""

import subprocess
import sys

import pytest


@pytest.mark.sample(1)
@pytest.mark.parametrize("first", ["import sgdlab.tasks.evaluation", "from sgdlab.tasks import evaluate", ""])
def test_the_name_is_the_function(first):
    script = f"{first}\nimport sgdlab\nprint(callable(sgdlab.tasks.evaluation), 'evaluate' in dir(sgdlab.tasks))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
