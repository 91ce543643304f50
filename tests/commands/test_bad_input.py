"""Wrong files, names and directories on a command line: one line that names the person's own, and exit code 2."""

import re
import sys

import pytest

from sgdlab.runs import configuration

# ml_collections loads a configuration's file by an importer's method that Python is about to drop.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.fixture(name="refused")
def line_of_a_refused_command(call, monkeypatch):
    """Runs a command: the only line that it prints, on the standard error."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for registry in configuration.FAMILIES:
        monkeypatch.setattr(registry, "_parts", dict(registry))

    def refused(name, *arguments):
        code, output, errors = call(name, *arguments)
        assert (code, output) == (2, ""), errors
        (line,) = errors.splitlines()
        return line.removeprefix("error: ")

    return refused


@pytest.fixture(name="own")
def files_of_ones_own(tmp_path):
    """Writes a file in the directory of the command."""

    def write(name, text):
        (tmp_path / name).write_text(text)
        return name

    yield write
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(vars(module).get("__file__")):
            del sys.modules[name]


@pytest.mark.parametrize("flag", ["config", "parts"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere.py", "it does not exist"),
        ("folder", "it is a directory"),
        ("trace.csv", "its name ends in .csv"),
        ("bare", "its name has no ending"),
    ],
)
def test_what_is_no_python_file_is_told_apart(refused, own, tmp_path, flag, name, why):
    (tmp_path / "folder").mkdir()
    own("trace.csv", "a,b\n1,2\n")
    own("bare", "")
    assert refused("train", f"--{flag}={name}") == f"--{flag}={name} must be a Python file, such as mine.py: {why}"


@pytest.mark.parametrize("flag", ["config", "parts"])
@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("x = 1\ny = (\n", 2, "SyntaxError: '(' was never closed"),
        ("\nimport no_module_of_this_name\n", 2, "ModuleNotFoundError: No module named 'no_module_of_this_name'"),
        ("def f():\n    return {}['a']\n\nf()\n", 2, "KeyError: 'a'"),
        ("import ast\nast.parse('x = (')\n", 2, "SyntaxError: '(' was never closed"),  # and no line of what it is given
        ("from sgdlab import arguments\narguments.whole('n', 0)\n", 2, "n=0 must be a whole number of at least 1"),
    ],
)
def test_a_file_that_raises_is_named_with_its_line(refused, own, flag, text, line, what):
    file = own("mistaken.py", text)
    assert refused("train", f"--{flag}={file}") == f"--{flag}={file}, line {line}: {what}"


def test_a_mistake_in_a_module_beside_a_file_is_there(refused, own, tmp_path):
    own("beside_it.py", "x = 1\n1 / 0\n")
    line = refused("train", f"--parts={own('first_one.py', 'import beside_it')}")
    assert line == f"--parts=first_one.py: {tmp_path / 'beside_it.py'}, line 2: ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a = 1\n", " must have a function get_config, which returns the configuration"),
        ("def get_config():\n    pass\n", ": get_config must return a ConfigDict, and returned a NoneType"),
        ("def get_config():\n    return {}\n", ": get_config must return a ConfigDict, and returned a dict"),
        ("def get_config():\n    open('nowhere')\n", ", line 2: FileNotFoundError: .*'nowhere'"),
        ("def get_config():\n    raise ValueError('no')\n", ", line 2: ValueError: no"),
        (
            "from sgdlab.runs.configuration import entries\n"
            "def get_config():\n    return entries({'cluster': 'nosuch'})\n",
            ", line 3: --config.cluster.kind=nosuch must be one of .*",
        ),
    ],
)
def test_a_file_that_makes_no_configuration_is_named(refused, own, text, what):
    file = own("made.py", text)
    assert re.fullmatch(f"--config={file}{what}", refused("train", f"--config={file}", "--config.epochs=2"))


def test_a_variant_that_is_refused_is_named_without_a_line(refused, own):
    file = own("made.py", "def get_config(name):\n    raise ValueError(f'{name=} must be another')\n")
    assert refused("train", f"--config={file}:x") == f"--config={file}:x: name='x' must be another"


@pytest.mark.parametrize("flag", ["workdir", "config", "hosts"])
def test_an_empty_value_is_not_the_default(refused, flag):
    assert refused("train", f"--{flag}=") == f"--{flag}= must not be empty; leave it out for what is usual"


@pytest.mark.parametrize(
    ("flag", "right"),
    [
        ("--config.replacement=maybe", "true or false"),
        ("--rerun=maybe", "true or false"),
        ("--config.epochs=eight", "a number"),
    ],
)
def test_all_values_are_refused_in_one_form(refused, flag, right):
    assert refused("train", flag) == f"{flag} must be {right}"


@pytest.mark.parametrize("name", ["certificate", "compare", "live", "timeline", "train"])
def test_a_directory_that_cannot_be_written_is_refused_before_anything_is_made(refused, tmp_path, monkeypatch, name):
    def make(*arguments, **given):
        raise AssertionError("it was begun")

    for module, function in (("plan", "make_plan"), ("live", "make_job")):
        monkeypatch.setattr(f"sgdlab.runs.{module}.{function}", make)
    (tmp_path / "file").touch()
    line = refused(name, f"--workdir={tmp_path / 'file' / 'below'}")
    assert line.startswith(f"--workdir={tmp_path / 'file' / 'below'} must be a directory that can be written: no file")


def test_nobody_writes_into_proc(refused):
    """Not even root, to whom its rights say that they do."""
    assert refused("timeline", "--workdir=/proc/nope").startswith("--workdir=/proc/nope must be a directory that can")


@pytest.mark.parametrize(
    ("name", "flag", "meant", "listed"),
    [
        ("train", "--config.method=agsd", "'asgd', ", "sgdlab train --help"),
        ("compare", "--methods=agsd", "'asgd', ", "sgdlab train --help"),
        ("compare", "--rerun=agsd", "'asgd', ", "sgdlab train --help"),
        ("certificate", "--methods=asgd,agsd", "'asgd', ", "sgdlab train --help"),
        ("timeline", "--methods=agsd", "'asgd', ", "sgdlab train --help"),
        ("train", "--config.protocol.kind=synchronos", "'synchronous', ", "sgdlab train --help=all"),
        ("train", "--config.rule.kind=gapaware", "'gap_aware', ", "sgdlab train --help=all"),
        ("train", "--config.data.kind=mnits", "'mnist'", "sgdlab data"),
    ],
)
def test_a_misspelt_name_is_answered_by_the_nearest(refused, name, flag, meant, listed):
    line = refused(name, flag)
    given = flag.replace("asgd,", "")
    assert re.match(rf"{given} must be one of \d+ names; did you mean {meant}", line)
    assert line.endswith(f"`{listed}` lists all")
    assert line.count("'") <= 6
    assert refused("train", "--config.method=xyzzy").endswith("names; `sgdlab train --help` lists all")


@pytest.mark.parametrize("family", ["protocol", "rule"])
def test_what_lists_all_names_lists_them(call, family):
    code, page, _ = call("train", "--help=all")
    assert code == 0
    words = re.split(r"[\s,]+", page.partition(f"--config.{family}.kind=")[2].partition("--")[0])
    (registry,) = [registry for registry in configuration.FAMILIES if registry.family == family]
    assert {name for name, part in registry.items() if not part.is_foreign} <= set(words)


@pytest.mark.parametrize("flag", ["--recording", "--schedule"])
def test_a_text_file_is_no_archive(refused, own, flag):
    line = refused("timeline", f"{flag}={own('text.npz', 'a,b')}")
    assert line.startswith(f"{flag}=text.npz must be ")
    assert line.endswith(": it is another kind of file (text)")


def test_what_tuning_sets_is_not_varied(refused):
    said = refused("compare", "--methods=asgd", "--tune=4", "--sweep=batch_size=4,8", "--config.epochs=0.01")
    assert said.startswith("--sweep=batch_size must be left out beside tune=4: each method is tuned once, as the")
