"""A page for each method, and their index, made from the parts that registered themselves."""

import math
import re
from collections.abc import Mapping
from typing import Any

from docs.making import decision, measured, paper_pages, part_sections, pictures, simulated, tables, tuned
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.registry import Part
from sgdlab.rules.family import RULES
from sgdlab.runs.methods import OTHERS, Method, methods

EQUATION = re.compile(r'<math[^>]*display="block".*?</math>', re.DOTALL)


def path(method: Method) -> str:
    """Return the page of a method, as a path below the site's root.

    Example:
      >>> from sgdlab.runs.methods import methods
      >>> path(methods()["gap_aware"])
      'methods/gap_aware.md'
    """
    return f"methods/{method.name}.md"


def by_family() -> dict[str, list[Method]]:
    """Methods by their own family, families in the order in which they appear.

    Example:
      >>> [method.name for method in by_family()["Adam"]]
      ['adam', 'adam_staleness_aware', 'adam_gap_aware']
    """
    found: dict[str, list[Method]] = {}
    for method in methods().values():
        found.setdefault((method.families or OTHERS)[0], []).append(method)
    return found


def page(method: Method) -> str:
    """Return the page of one method as Markdown."""
    protocol, rule = PROTOCOLS[method.protocol], RULES[method.rule]
    parts = [
        f"# {method.title}",
        f"`{method.name}` · {', '.join(method.families)}" + f" · {method.source}" * bool(method.source),
        *_idea(method, protocol, rule),
        "## Five workers",
        f"![{method.title}: five workers in {pictures.seconds(method):.0f} seconds](../{pictures.name(method)})",
        f"A bar is {_sent(method)}, and the number in it the version of the parameters that it began with; "
        f"{_lines(method)}. The workers are unequal; on average over clusters a gradient takes 8 seconds of virtual "
        "time. The rule does not change when gradients come: methods with the same protocol share this picture.",
        "## Where it wins, where it loses",
        *_tuned(method),
        *_trained(method),
        *_speeds(method),
        "## Run it",
        _commands(method),
        _live(protocol),
        "## Arguments",
        *part_sections.arguments(PROTOCOLS, protocol, method.entries),
        *part_sections.arguments(RULES, rule, method.rule_entries),
        "## Reference",
        *part_sections.reference(protocol),
        *part_sections.reference(rule),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def index() -> str:
    """Return all methods by family, and the parts that are no method by themselves."""
    parts = [
        "# Methods",
        f"sgdlab has {len(methods())} methods. A method is a *protocol* (whom to wait for) and a *rule* (what the "
        "server does with a gradient) under one name; any protocol goes with any rule. Each page is made from the "
        "part's own code: its formula, its arguments, a picture of five workers, and what was measured.",
    ]
    for family, members in by_family().items():
        rows = [
            [f"[{method.title}]({method.name}.md)", f"`{method.name}`", _summary(method), method.source]
            for method in members
        ]
        parts += [f"## {family}", tables.table(["method", "name", "idea", "source"], rows)]
    parts += ["## Parts to combine", *_parts_alone()]
    return "\n\n".join(parts) + "\n"


def _summary(method: Method) -> str:
    """Return the idea in a sentence: of the part whose name the method has; of a combination, what is combined."""
    own = _own(method)
    if own is not None:
        return part_sections.described(own).summary
    protocol, rule = PROTOCOLS[method.protocol], RULES[method.rule]
    local = f", messages of {pictures.local_steps(method)}" if "steps" in method.local else ""
    return (
        f"The protocol `{protocol.name}` ({protocol.title}{_meant(method.entries)}) with the rule `{rule.name}` "
        f"({rule.title}{_meant(method.rule_entries)}){local}."
    )


def _meant(entries: Mapping[str, Any]) -> str:
    """Return the entries of a part that the method's name sets."""
    return "".join(f", `{entry}={value}`" for entry, value in entries.items())


def _sent(method: Method) -> str:
    """Return what a worker computes before it speaks."""
    return f"a message of {pictures.local_steps(method)}" if "steps" in method.local else "a gradient"


def _lines(method: Method) -> str:
    """Return what else is drawn."""
    without_server = any(speed.distance is None for speed in simulated.speeds(method).values())
    return "a thin line is one node averaging another's parameters" if without_server else "ticks are updates"


def _own(method: Method) -> Part | None:
    """Return the part whose name the method has; None of a combination of two, with a name of its own."""
    if method.name == method.protocol:
        return PROTOCOLS[method.protocol]
    return RULES[method.rule] if method.name == method.rule else None


def _idea(method: Method, protocol: Part, rule: Part) -> list[str]:
    own = _own(method)
    lines = [f"**{_summary(method)}**"]
    if own is not None:
        other, meant = (rule, method.rule_entries) if own is protocol else (protocol, method.entries)
        role = "Gradients then enter the rule" if own is protocol else "Workers wait as in"
        lines += [
            part_sections.described(own).body,
            f"{role} `{other.name}` ({other.title}{_meant(meant)}): {part_sections.described(other).summary}",
        ]
        if other.name == method.name:  # both are made for each other
            lines.append(part_sections.described(other).body)
        elif "<math" not in part_sections.described(own).body:
            lines += EQUATION.findall(part_sections.described(other).body)
    else:
        for asked, part in (("Whom to wait for", protocol), ("What is done with a gradient", rule)):
            lines += [
                f"{asked}, `{part.name}`: {part_sections.described(part).summary}",
                part_sections.described(part).body,
            ]
    if method.local:
        meant = ", ".join(f"`{entry}={value}`" for entry, value in method.local.items())
        lines.append(f"What a worker sends is how far several steps of its own have moved (`config.local`: {meant}).")
    source = part_sections.described(own).sections.get("Source", "") if own is not None else f"{method.source}."
    cited = paper_pages.of_source(method.source)
    papers = ", ".join(
        [
            *(f"[what holds of that paper](../{paper_pages.path(paper)})" for paper in cited),
            *(
                f"[what holds of that paper: {title}](../{path})"
                for title, path in paper_pages.others_of_source(method.source)
            ),
        ]
    )
    said = f"Source: {' '.join(source.split())}" if source.strip(".") else ""
    return [*lines, f"{said} See {papers}." if papers else said]


def _tuned(method: Method) -> list[str]:
    found = tuned.of(method.name)
    if not found:
        return []
    rows = [[tuned.title(row.workload), *tuned.cells(row)] for row in found]
    return [
        "At its best on 8x8 digits, after 24 trials as every method has them, with seeds, clusters and test folds that "
        "tuning never saw ([methods at their best](../tuning.md)); medians, and their 95 % intervals:",
        tables.table(["workers", *tuned.HEADINGS], rows),
        *(f"* {tuned.verdict(row)}" for row in found),
    ]


def _trained(method: Method) -> list[str]:
    found = measured.of(method.name)
    if not found:
        return [
            "**Trained: not measured yet.** The stored comparison has no row of this method; "
            f"`sgdlab compare --methods={method.name},synchronous --seeds=3` makes one."
        ]
    about, alone = measured.made(), measured.single(method.baseline)
    lines = [
        f"Trained on 8x8 digits, {next(iter(found.values())).seeds} seeds, on the unequal workers of "
        f"`configs/digits.py`, hyperparameters not tuned for it (`{about['command']}`, {about['when']}, "
        f"commit {about['commit']}, {about['hardware']}):"
    ]
    rows = [tables.trained(row) for row in found.values()]
    if alone is not None:
        rows.insert(0, ["1, alone", *tables.trained(alone)[1:]])
    lines.append(tables.table(tables.TRAINED, rows))
    return [*lines, *(f"* {sentence}" for sentence in _verdicts(method, alone))]


def _verdicts(method: Method, alone: measured.Row | None) -> list[str]:
    said = []
    for count, row in measured.of(method.name).items():
        if row.diverged:
            said.append(f"With {count} workers, {row.diverged} of {row.seeds} seeds diverged at this rate.")
            continue
        if math.isnan(row.seconds_to_target):
            said.append(f"With {count} workers, not every seed reaches 95 %.")
        if alone is not None:
            points = measured.differs(row, alone)
            how = (
                "as accurate as a single worker, as far as the seeds tell"
                if points == 0
                else (f"{abs(points):.1f} points {'more' if points > 0 else 'less'} accurate than a single worker")
            )
            said.append(f"With {count} workers it is {how}.")
    return said


def _speeds(method: Method) -> list[str]:
    speeds = simulated.speeds(method)
    if not speeds:
        return ["Its schedule does not come from compute times of a cluster: there is no speed to compare."]
    rows = [
        [
            cluster,
            f"{s.speedup:.2f}",
            tables.number(s.staleness, 1),
            f"{100 * s.wasted:.0f} %",
            f"{100 * s.idle:.0f} %",
            f"{s.effective:.1f}",
            "-" if s.distance is None else str(s.distance),
        ]
        for cluster, s in speeds.items()
    ]
    return [
        f"Simulated with {simulated.NUM_WORKERS} workers when this page was built, with the configuration's own "
        "entries and seed 0 (speed alone: nothing is trained, and a fast method may learn less from each gradient; "
        "[the clusters](../choose.md#speed-alone)):",
        tables.table(["cluster", "x sync. SGD", "staleness", "wasted", "idle", "effective workers", "R"], rows),
        "[Certificates](../certificates.md) says what effective workers and R are." + _weights(method),
    ]


def _weights(method: Method) -> str:
    """Say that effective workers are not all, where the rule weighs gradients."""
    if not decision.weighs_alike(method):
        return ""
    return (
        f" Effective workers count gradients; yet all workers weigh alike under {method.title}, by the rule, however "
        "few of a worker's gradients come."
    )


def _commands(method: Method) -> str:
    five = f"--config.cluster.num_workers={simulated.PICTURED_WORKERS} --config.epochs=2.0"
    return "\n".join([
        "```",
        f"sgdlab train --config.method={method.name} --config.cluster.num_workers=16 --workdir=runs/{method.name}",
        f"sgdlab compare --methods={method.name},synchronous --workdir=runs/{method.name}_compared".replace(
            "synchronous,synchronous", "synchronous,asgd"
        ),
        f"sgdlab timeline --config.method={method.name} {five} --seconds={pictures.seconds(method):.0f} "
        f"--workdir=runs/{method.name}_drawn",
        *([f"sgdlab live --config.method={method.name} --num_workers=4 --workdir=runs/{method.name}_live"]
          if _runs_live(PROTOCOLS[method.protocol]) else []),
        "```",
    ])  # fmt: skip


def _live(protocol: Part) -> str:
    if _runs_live(protocol):
        return "It also runs [live](../live.md), on real processes: the same decisions, event by event."
    why = protocol.facts.no_policy or "its nodes have no server"
    return f"Simulation only: {why}."


def _runs_live(protocol: Part) -> bool:
    return protocol.facts.policy is not None and not protocol.facts.peers


def _parts_alone() -> list[str]:
    used = methods().values()
    lines = []
    for registry, taken in ((PROTOCOLS, {m.protocol for m in used}), (RULES, {m.rule for m in used})):
        rows = [
            [f"`{name}`", part.title, part_sections.described(part).summary, part.source]
            for name, part in registry.items()
            if name not in taken
        ]
        if rows:
            lines += [
                f"Chosen with `--config.{registry.family}.kind` alone:",
                tables.table([registry.family, "", "idea", "source"], rows),
            ]
    return lines or ["Every protocol and every rule is part of a method above."]
