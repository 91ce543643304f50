"""The command that lists data sets and prepares them: what it says, and what it asks for."""

import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from sgdlab.commands import data
from sgdlab.data import preparing, wikitext_builder
from sgdlab.registry import DATASETS

ROOT = pathlib.Path(__file__).parents[2]


def test_a_name_may_stand_alone():
    answer = subprocess.run(
        [sys.executable, "-m", "sgdlab", "data", "stdlib_text"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("stdlib_text: Python's standard library\n  train ")
    assert "vocabulary of 256" in answer.stdout
    assert re.search(r"sha256: [0-9a-f]{64}\n", answer.stdout)


def test_lists_all_with_one_line_each(call, tmp_path):
    code, output, _ = call(data, f"--data_dir={tmp_path}")
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in output.splitlines())
    assert set(lines) == set(DATASETS)
    assert lines["digits"].endswith("needs no files")
    assert lines["npz"].endswith("--config.data.npz.path=...")
    for name in ("mnist", "cifar10", "imagenet", "wikitext103"):
        assert "not prepared" in lines[name]
        for words in (*DATASETS[name].facts.by_hand, str(preparing.by_hand(tmp_path))):
            assert words in lines[name]


def test_describes_images(call):
    code, output, _ = call(data, "--name=digits")
    assert code == 0
    for words in ("1,437 images of 8x8x1, uint8, 92.0 kB in memory", "360 images", "10 classes"):
        assert words in output


def test_prepares_and_then_finds_it(call, tmp_path, monkeypatch):
    monkeypatch.setattr(wikitext_builder.Wikitext103, "TOKENS", {"train": 600, "validation": 3, "test": 301})
    monkeypatch.setattr(wikitext_builder.Wikitext103, "WORDS", 3)
    preparing.by_hand(tmp_path).mkdir(parents=True)
    texts = {"train": "a b\n" * 200, "valid": "a b\n", "test": "a a\n" * 100 + "\n"}
    with zipfile.ZipFile(preparing.by_hand(tmp_path) / "wikitext-103-v1.zip", "w") as archive:
        for split, text in texts.items():
            archive.writestr(f"wikitext-103/wiki.{split}.tokens", text)
    for _ in range(2):
        code, output, errors = call(data, "--name=wikitext103", f"--data_dir={tmp_path}")
        assert (code, errors) == (0, "")
        assert output.startswith("wikitext103: WikiText-103 (Merity et al. 2016)\n")
        for words in ("600 tokens, 3 segments of 150", "301 tokens, 2 segments", "vocabulary of 3", f"in {tmp_path}"):
            assert words in output
    assert "prepared: " in call(data, f"--data_dir={tmp_path}")[1]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--name=mnits"], r"--name=mnits must be one of .* did you mean 'mnist'\? `sgdlab data` lists all"),
        (["mnits"], "'mnits' must be one of .*"),
        (["mnist", "--name=digits"], "--name=digits must be left out beside 'mnist'"),
        (["--name=npz"], r"npz needs an entry .*--config.data.kind=npz --config.data.npz.path=\.\.\."),
        (["--name=tfds"], r"tfds needs an entry .*--config.data.tfds.name=\.\.\."),
        (["--nmae=mnist"], r"--nmae is not a flag; did you mean --name=mnist\?"),
        (["--config.data.kind=mnist"], r"--config.data.kind=mnist is not a flag of this command"),
    ],
)
def test_mistakes_are_one_line(call, arguments, match):
    code, output, errors = call(data, *arguments)
    assert (code, output) == (2, "")
    (line,) = errors.splitlines()
    assert re.match(f"error: {match}", line)


@pytest.mark.parametrize("name", ["imagenet", "wikitext103"])
def test_a_missing_set_is_one_line(call, tmp_path, name):
    code, output, errors = call(data, f"--name={name}", f"--data_dir={tmp_path}")
    assert (code, output) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"error: --data_dir={str(tmp_path)!r} must hold")
    for words in (*DATASETS[name].facts.by_hand, str(preparing.by_hand(tmp_path))):
        assert words in line
