"""Writes the results of `advise`: text for the terminal, tables and plots as files, and the page."""

import pathlib
import re
import textwrap
from collections.abc import Sequence

from sgdlab import files
from sgdlab.advice.answer import headline, machine_readable, next_steps, page, pictures, sentences
from sgdlab.advice.findings import Findings
from sgdlab.advice.what_if import table as what_if_table
from sgdlab.results import plots

Commands = Sequence[tuple[str, str]]
"""Pairs of a purpose and a command line."""

_WIDTH = 112
"""Characters per line in the terminal."""


def terminal_text(findings: Findings, commands: Commands) -> str:
    """The answer, the tables, the meaning of their columns, the sentences and the proposed commands.

    Args:
      findings: all results.
      commands: purposes and command lines.
    """
    said = headline.headline(findings)
    answer = [said.problem, said.advice, sentences.rule(findings)]
    parts = ["\n".join(_filled(line) for line in answer if line)]
    parts += [findings.table.table().text(), findings.table.sweep_table().grid()]
    details = [*sentences.details(findings), ("What if", what_if_table.sentence(findings.what_if))]
    parts.append("\n".join(_filled(f"* {heading}: {text}", "  ") for heading, text in details if text))
    parts += [f"{_filled(f'{purpose}:')}\n    {command}" for purpose, command in commands]
    return "\n\n".join(parts)


def _filled(text: str, indent: str = "") -> str:
    kept = re.sub(r"\bx (?=\d)", "x\N{NO-BREAK SPACE}", text)  # "x 1.17" stays in one line
    lines = textwrap.fill(kept, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def write(directory: pathlib.Path, findings: Findings, commands: Commands) -> pathlib.Path:
    """Writes the page, tables as CSV, Markdown and JSON, the evaluation steps and the plots.

    Args:
      directory: where to, created if it is missing.
      findings: all results.
      commands: purposes and command lines.

    Returns:
      The path of advice.html.

    Raises:
      OSError: if a file cannot be written.
    """
    figures = pictures.all_of(findings)
    for name, figure in figures.items():
        plots.save(figure, directory / name)
    title = f"Advice on {findings.parts.name}"
    next_steps.answered(findings.parts, findings.verdict.chosen).save(directory / next_steps.ANSWERED)
    files.write_text(directory / "advice.csv", findings.table.comma_separated())
    files.write_text(directory / "what_if.csv", what_if_table.comma_separated(findings.what_if))
    files.write_text(directory / "scores.csv", what_if_table.scores_comma_separated(findings.what_if))
    files.write_text(directory / "advice.json", machine_readable.text(findings))
    files.write_text(directory / "advice.md", _markdown(title, findings, commands, list(figures)))
    saved = {name: directory / f"{name}.svg" for name in figures}
    html = page.make(findings, saved, commands, title=title, model=directory / "model")
    files.write_text(directory / "advice.html", html)
    return directory / "advice.html"


def _markdown(title: str, findings: Findings, commands: Commands, names: Sequence[str]) -> str:
    answers, what_if = findings.table, findings.what_if
    parts = [
        f"# {title}",
        "\n".join(f"* **{heading}**: {text}" for heading, text in sentences.all_of(findings)),
        "\n".join(f"* {name}: {value}" for name, value in findings.parts.facts()),
        answers.table().markdown_grid(),
        answers.sweep_table().markdown_grid(),
        what_if_table.sentence(what_if),
        what_if_table.repairs(what_if).markdown_grid(),
        "\n\n".join(f"![{pictures.CAPTIONS[name]}]({name}.svg)" for name in names),
        "\n\n".join(f"{purpose}:\n\n    {command}" for purpose, command in commands),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
