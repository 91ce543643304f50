"""Writes the results of `advise`: text for the terminal, tables and plots as files, and the page."""

import pathlib
import textwrap
from collections.abc import Sequence

from sgdlab import files
from sgdlab.advice import page, pictures, sentences, table
from sgdlab.advice.findings import Findings
from sgdlab.results import plots

Commands = Sequence[tuple[str, str]]
"""Pairs of a purpose and a command line."""

_WIDTH = 112
"""Characters per line in the terminal."""


def terminal_text(findings: Findings, commands: Commands) -> str:
    """The tables, the meaning of their columns, the sentences and the proposed commands.

    Args:
      findings: all results.
      commands: purposes and command lines.
    """
    parts = [table.text(findings.table), table.legend(_WIDTH), table.sweep_text(findings.table)]
    parts.append("\n".join(_item(heading, text) for heading, text in sentences.all_of(findings)))
    parts += [f"{textwrap.fill(f'{purpose}:', _WIDTH)}\n    {command}" for purpose, command in commands]
    return "\n\n".join(parts)


def _item(heading: str, text: str) -> str:
    return textwrap.fill(
        f"* {heading}: {text}", _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def write(directory: pathlib.Path, findings: Findings, commands: Commands) -> pathlib.Path:
    """Writes advice.html, advice.md, advice.csv and the plots.

    Args:
      directory: where to, created if it is missing.
      findings: all results.
      commands: purposes and command lines.

    Returns:
      The path of advice.html.

    Raises:
      OSError: if a file cannot be written.
    """
    parts, answers = findings.parts, findings.table
    steps = parts.complete.steps[len(parts.train) :].tolist()
    figures = {
        "runtimes": pictures.heat_map(parts),
        "protocols": pictures.protocols(answers, findings.verdict),
        "backups": pictures.numbers_waited_for(answers, findings.verdict),
        "idle": pictures.idle(parts, findings.stragglers),
        "predictions": pictures.predictions(answers.comparison.record, steps),
    }
    for name, figure in figures.items():
        plots.save(figure, directory / name)
    title = f"Fastest protocol on {parts.name}"
    files.write_text(directory / "advice.csv", table.comma_separated(answers.lines()))
    files.write_text(directory / "advice.md", _markdown(title, findings, commands, list(figures)))
    saved = {name: directory / f"{name}.svg" for name in figures}
    files.write_text(directory / "advice.html", page.make(findings, saved, commands, title=title))
    return directory / "advice.html"


def _markdown(title: str, findings: Findings, commands: Commands, names: Sequence[str]) -> str:
    answers = findings.table
    parts = [
        f"# {title}",
        "\n".join(f"* {name}: {value}" for name, value in findings.parts.facts()),
        "\n".join(f"* **{heading}**: {text}" for heading, text in sentences.all_of(findings)),
        table.markdown(answers.rows(), list(table.COLUMNS)),
        table.markdown(answers.sweep_rows(), table.SWEEP_COLUMNS),
        "\n\n".join(f"![{page.CAPTIONS[name]}]({name}.svg)" for name in names),
        "\n\n".join(f"{purpose}:\n\n    {command}" for purpose, command in commands),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
