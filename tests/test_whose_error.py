"""Errors of a user's own code: the run, the line of theirs, and what happened."""

import importlib.util

import pytest

from sgdlab.errors import RunFailed, UsageError, failures_of


def user_module(tmp_path, body):
    file = tmp_path / "theirs.py"
    file.write_text(f"import dataclasses, json\nfrom sgdlab import arguments\n\n\ndef work():\n{body}\n")
    spec = importlib.util.spec_from_file_location("theirs", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("body", "line", "what"),
    [
        ("    return 1 / 0", 6, "ZeroDivisionError: division by zero"),
        ("    arguments.whole('n', -1)", 6, "ValueError: n=-1"),  # raised in this package
        ("    # text\n    json.loads('{')", 7, "json.decoder.JSONDecodeError"),  # raised in a library
    ],
)
def test_the_line_is_the_users_own(tmp_path, body, line, what):
    module = user_module(tmp_path, body)
    with pytest.raises(RunFailed) as caught, failures_of("mine, 8 workers"):
        module.work()
    whole, _, end = str(caught.value).rpartition("\nerror: ")
    assert whole.startswith("Traceback (most recent call last)")
    first, code, error = end.splitlines()
    assert first == f"mine, 8 workers failed: {tmp_path / 'theirs.py'}, line {line}, in work:"
    assert code == f"    {body.splitlines()[-1].strip()}"
    assert error.startswith(what)


@pytest.mark.parametrize("error", [UsageError("--seeds=0"), MemoryError(), RunFailed("before"), KeyboardInterrupt()])
def test_what_is_no_mistake_in_code_passes(error):
    with pytest.raises(type(error)) as caught, failures_of("mine"):
        raise error
    assert caught.value is error
