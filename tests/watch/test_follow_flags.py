"""Flags of `sgdlab advise` that would change nothing are refused, in one line."""

import pytest

from sgdlab.commands import advise, launch


def answer(*argv):
    return launch.answer(
        advise.main, advise.__doc__, ["advise", *argv], define=advise.define_flags, **launch.settings_of(advise)
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--follow=a.csv", "b.csv"], "'b.csv' must be left out beside --follow=a.csv"),
        (["--follow=a.csv", "--what_if"], "--what_if must be left out beside --follow=a.csv"),
        (["--follow=a.csv", "--trace_format=csv"], "--trace_format must be left out beside --follow=a.csv"),
        (["--follow=a.csv", "--serve", "8123"], "--serve 8123 must be one word: --serve=8123"),
        (["a.csv", "--once"], "--once must come with --follow=TRACE"),
        (["a.csv", "--json"], "--json must come with --follow=TRACE"),
        (["a.csv", "--alarms=x"], "--alarms must come with --follow=TRACE"),
        (["a.csv", "--until_idle=3"], "--until_idle must come with --follow=TRACE"),
        (["a.csv", "--serve"], "--serve must come with --follow=TRACE"),
    ],
)
def test_flags_that_change_nothing_are_refused(argv, words, capsys, tmp_path):
    assert answer(*argv, f"--workdir={tmp_path}") == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert "\n" not in error
