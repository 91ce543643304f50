"""Writes the results of `advise`: text for the terminal, tables and plots as files, and the self-contained page."""

import pathlib
import re
import textwrap
from collections.abc import Mapping, Sequence

from sgdlab import files
from sgdlab.report import pages
from sgdlab.report.words import sentence
from sgdlab.results import plots
from sgdlab.stragglers.answer import headline, machine_readable, next_steps, pictures, rules, sentences
from sgdlab.stragglers.findings import Findings
from sgdlab.stragglers.recording import NOTE
from sgdlab.stragglers.what_if import pipeline_words
from sgdlab.stragglers.what_if import table as what_if_table

Commands = Sequence[tuple[str, str]]
"""Pairs of a purpose and a command line."""

_WIDTH = 112
"""Characters per line in the terminal."""


def terminal_text(findings: Findings, commands: Commands) -> str:
    """The answer, the tables, the meaning of their columns, the sentences and the proposed commands."""
    said = headline.headline(findings)
    answer = [said.problem, said.advice, rules.rule(findings.verdict.chosen, len(findings.parts.workers))]
    parts = ["\n".join(_filled(line) for line in answer if line)]
    parts += [findings.table.table().text(), findings.table.sweep_table().grid()]
    details = [*sentences.details(findings), ("What if", what_if_table.summary(findings.what_if))]
    parts.append("\n".join(_filled(f"* {heading}: {text}", "  ") for heading, text in details if text))
    parts += [f"{_filled(f'{purpose}:')}\n    {command}" for purpose, command in commands]
    return "\n\n".join(parts)


def _filled(text: str, indent: str = "") -> str:
    kept = re.sub(r"\bx (?=\d)", "x\N{NO-BREAK SPACE}", text)  # "x 1.17" stays in one line
    lines = textwrap.fill(kept, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def write(directory: pathlib.Path, findings: Findings, commands: Commands) -> pathlib.Path:
    """Writes the page, tables as CSV, Markdown and JSON, the evaluation steps and the plots.

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
    html = make_page(findings, saved, commands, title=title, model=directory / "model")
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
        what_if_table.summary(what_if),
        what_if_table.repairs(what_if).markdown_grid(),
        "\n\n".join(f"![{pictures.CAPTIONS[name]}]({name}.svg)" for name in names),
        "\n\n".join(f"{purpose}:\n\n    {command}" for purpose, command in commands),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_MOST_WORKERS = 12
"""Most workers in the table of scores."""


def make_page(
    findings: Findings, saved: Mapping[str, pathlib.Path], commands: Commands, *, title: str, model: pathlib.Path
) -> str:
    """The page as HTML, with its plots embedded; `saved` names the SVG files, `model` the trained model's directory."""
    parts, chosen, what_if = findings.parts, findings.verdict.chosen, findings.what_if
    said, details = headline.headline(findings), dict(sentences.details(findings))
    return pages.render(
        "sgdlab.stragglers.answer",
        "advice.html",
        title=title,
        subtitle=f"{len(parts.workers)} workers, {parts.recording.steps.size} recorded steps",
        problem=said.problem,
        advice=said.advice,
        causes=_causes(findings),
        rule=rules.rule(chosen, len(parts.workers)),
        out=headline.taken_out(findings),
        loop=rules.loop(chosen, len(parts.workers), model=model),
        given=rules.given(chosen),
        caution=details.pop("Before you switch", ""),
        commands=commands,
        steps=parts.test_steps,
        protocols=findings.table.table(findings.verdict.is_of),
        what_if=what_if_table.repairs(what_if),
        what_if_summary=what_if_table.summary(what_if),
        slowdowns=pipeline_words.slowdowns(what_if),
        scores=what_if_table.scores(what_if, _MOST_WORKERS),
        drain=what_if_table.drain_sentence(what_if),
        details=details,
        facts={name: text for name, text in parts.facts() if name != NOTE},
        sweep=findings.table.sweep_table(),
        pictures={
            section: [
                {"data": pages.embedded(saved[name]), "caption": caption}
                for name, caption in captions.items()
                if name in saved
            ]
            for section, captions in pictures.SECTIONS.items()
        },
    )


def _causes(findings: Findings) -> list[dict[str, str]]:
    complete = findings.parts.complete
    if complete.job is not None:
        return pipeline_words.causes(findings.what_if)
    return [
        {
            "headline": sentence(cause.headline(complete)),
            "evidence": "" if cause.evidence in cause.headline(complete) else cause.evidence,
            "cost": sentences.cost(cause),
        }
        for cause in findings.diagnosis.causes
    ]
