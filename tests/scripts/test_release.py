"""The release script refuses, in a line, what is not ready to be released; nothing is built or installed here."""

import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/release"
ADDRESS = "https://example.org/owner/sgdlab"


@pytest.fixture(name="released")
def repository_of_a_release(tmp_path):
    """A committed tree whose version, changelog and citation agree; returns a caller of its script."""
    files = {
        "sgdlab/__init__.py": '__version__ = "1.2.3"\n',
        "CHANGELOG.md": "# Changelog\n\n## 1.2.3\n",
        "CITATION.cff": "version: 1.2.3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts/release")

    def git(*arguments):
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "All")

    def call(*arguments, **changed):
        for name, text in changed.items():
            (
                tmp_path / {"version": "sgdlab/__init__.py", "changes": "CHANGELOG.md", "cite": "CITATION.cff"}[name]
            ).write_text(text)
            git("commit", "-am", name)
        line = ["bash", str(tmp_path / "scripts/release"), *arguments]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    return tmp_path, git, call


@pytest.mark.parametrize("arguments", [(), ("http://example.org",), (ADDRESS, "python3", "more")])
def test_it_needs_an_address(arguments, released):
    done = released[2](*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: scripts/release https://")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"version": '__version__ = "1.2.3.dev0"\n'}, "version 1.2.3.dev0 of sgdlab/__init__.py must be X.Y.Z"),
        ({"changes": "## Unreleased\n"}, "CHANGELOG.md has no section ## 1.2.3"),
        ({"cite": "version: 1.2.2\n"}, "CITATION.cff must have version: 1.2.3"),
    ],
)
def test_what_does_not_agree_is_named(changed, says, released):
    done = released[2](ADDRESS, **changed)
    assert done.returncode == 1
    assert done.stderr == f"scripts/release: {says}\n"


def test_a_changed_tree_and_a_tag_that_is_there_are_refused(released):
    path, git, call = released
    git("tag", "v1.2.3")
    assert "the tag v1.2.3 is there already" in call(ADDRESS).stderr
    (path / "new.txt").write_text("")
    assert "the working tree has changes: commit them first" in call(ADDRESS).stderr


def test_what_agrees_is_built(released):
    """With an interpreter that makes no environment, it ends there, and has said what it does."""
    done = released[2](ADDRESS, "false")
    assert done.returncode == 1
    assert done.stdout == "Building sgdlab 1.2.3 ...\n"
    assert done.stderr == ""
