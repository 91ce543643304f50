"""Reads a recorded trace and says how much time stragglers cost, and which protocol would be fastest on that cluster.

    sgdlab advise --trace=trace.parquet

The trace: Parquet or CSV with a row for each worker and step (worker, step, duration in seconds), a wide CSV or .npy
(steps x workers), or a table of operations; sgdlab/cluster/recorded.py says more. Steps may be sampled; those in which
a worker is missing are left out.

Protocols are compared on the second part of the run: full synchrony, every number of backup workers, a deadline of
median + k MAD, running mean, Elfving, Kalman filter, the deep Markov cutoff and asynchrony, below the oracle. What is
tuned or trained sees the first part only. Half a minute for few steps, some minutes for many (training; --steps).

Leaves in the work directory (by default runs/advise/<name of the trace>): advice.html, one page that says it all;
advice.md and advice.csv, the tables; pictures as PNG and SVG; model/, the trained deep Markov model.
"""

import pathlib
import textwrap
from collections.abc import Sequence

from absl import flags

from sgdlab import files
from sgdlab.advice import comparison, next_steps, page, pictures, recording, sentences, stragglers, table, verdict
from sgdlab.advice.sentences import Findings
from sgdlab.advice.uncertainty import Resamples
from sgdlab.commands import launch
from sgdlab.errors import UsageError
from sgdlab.results import plots

Commands = Sequence[tuple[str, str]]

CONFIGURED = False


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("trace", None, "The recorded trace.")
    flags.DEFINE_float("train_share", 0.5, "Of the complete steps, the first, that are tuned and trained on.")
    flags.DEFINE_integer("steps", 3000, "Of the optimiser that trains the deep Markov model, at most.")
    flags.DEFINE_integer("seed", 0, "Of training, of predictors' draws and of the intervals.")


def main(argv: Sequence[str]) -> None:
    """Reads, compares, and says what was found."""
    del argv
    given = flags.FLAGS
    if given.trace is None:
        raise UsageError("--trace must name a recorded trace")
    for name, least in (("steps", 1), ("seed", 0)):
        if given[name].value < least:
            raise UsageError(f"--{name}={given[name].value} must be a whole number of at least {least}")
    parts = recording.read(given.trace, train_share=given.train_share)
    workdir = pathlib.Path(launch.WORKDIR.value or f"runs/advise/{parts.name}")
    print("\n".join(f"{name:<22}{value}" for name, value in parts.facts()), flush=True)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        found = find(parts, workdir / "model", most_steps=given.steps, seed=given.seed)
        commands = next_steps.commands(parts, found.verdict.chosen, given.trace, str(workdir))
        tell(found, commands)
        where = publish(workdir, found, commands)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    print(f"\nReport: {where}")


def find(parts: recording.Parts, directory: pathlib.Path, *, most_steps: int, seed: int) -> Findings:
    """Compares all protocols, and decides; the deep Markov model is left in a directory."""
    compared = comparison.compare(
        parts, directory, most_steps=most_steps, seed=seed, say=lambda line: print(line, flush=True)
    )
    answers = table.Table(compared, Resamples(len(parts.test), seed=seed))
    return Findings(parts, answers, verdict.decide(answers), stragglers.find(parts.complete))


def tell(found: Findings, commands: Commands) -> None:
    """Tables, sentences and commands in the terminal."""
    print(f"\n{table.text(found.table)}\n\n{table.sweep_text(found.table)}\n")
    for word, said in sentences.all_of(found):
        print(textwrap.fill(f"* {word}: {said}", width=112, subsequent_indent="  ", break_long_words=False))
    for purpose, command in commands:
        print(f"\n{purpose}:\n    {command}")


def publish(workdir: pathlib.Path, found: Findings, commands: Commands) -> pathlib.Path:
    """Writes tables, pictures and the page; returns the page's path."""
    parts, answers = found.parts, found.table
    steps = parts.complete.steps[len(parts.train) :].tolist()
    figures = {
        "runtimes": pictures.heat_map(parts),
        "protocols": pictures.protocols(answers, found.verdict),
        "backups": pictures.numbers_waited_for(answers, found.verdict),
        "idle": pictures.idle(parts, found.stragglers),
        "predictions": pictures.predictions(answers.comparison.record, steps),
    }
    for name, figure in figures.items():
        plots.save(figure, workdir / name)
    title = f"Whom to wait for: {parts.name}"
    files.write_text(workdir / "advice.csv", table.comma_separated(answers.lines()))
    files.write_text(workdir / "advice.md", _markdown(title, found, commands, list(figures)))
    drawn = {name: workdir / f"{name}.svg" for name in figures}
    files.write_text(workdir / "advice.html", page.make(found, drawn, commands, title=title))
    return workdir / "advice.html"


def _markdown(title: str, found: Findings, commands: Commands, names: Sequence[str]) -> str:
    answers = found.table
    parts = [
        f"# {title}",
        "\n".join(f"* {name}: {value}" for name, value in found.parts.facts()),
        "\n".join(f"* **{word}**: {said}" for word, said in sentences.all_of(found)),
        table.markdown(answers.rows(), list(table.COLUMNS)),
        table.markdown(answers.sweep_rows(), table.SWEEP_COLUMNS),
        "\n\n".join(f"![{page.CAPTIONS[name]}]({name}.svg)" for name in names),
        "\n\n".join(f"{purpose}:\n\n    {command}" for purpose, command in commands),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
