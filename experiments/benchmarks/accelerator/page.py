"""`render`, the page of a record: what passed and what failed, the table of speeds, and all that was measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmarks.accelerator import table
from experiments.benchmarks.accelerator.record import any_failed
from sgdlab.report import pages


def render(record: Mapping[str, Any]) -> str:
    """Return a self-contained page."""
    machine, sections = record["machine"], record["sections"]
    speeds = table.rows(record)
    return pages.render(
        "experiments.benchmarks.accelerator",
        "accelerator.html",
        title="sgdlab on a CPU, without an accelerator" if machine["is_cpu"] else f"sgdlab on {machine['device']}",
        subtitle=f"{record['began'][:16].replace('T', ' ')}, {record['seconds']:.0f} s of at most "
        f"{60 * record['settings']['minutes']:.0f} s",
        verdict=verdict(record),
        passed=not any(section["errors"] or any_failed(section) for section in sections),
        is_cpu=machine["is_cpu"],
        is_toy=record["settings"].get("scale") == "toy",
        columns=table.COLUMNS,
        speeds=speeds,
        caption=table.caption(record) if speeds else "",
        sections=[_shown(section) for section in sections],
        facts=_facts(record),
    )


def verdict(record: Mapping[str, Any]) -> str:
    """Return one or two sentences: how many checks passed, what failed, and what is missing."""
    sections = record["sections"]
    checks = [row["met"] for section in sections for row in section["rows"] if row["met"] is not None]
    missed, errors = checks.count(False), sum(len(section["errors"]) for section in sections)
    said = [f"{missed} of {len(checks)} checks failed." if missed else f"All {len(checks)} checks passed."]
    if not checks:
        said = ["Nothing was checked."]
    if errors:
        said.append(f"{errors} measurement{'s' * (errors > 1)} ended with an error.")
    late = [section["title"] for section in sections if section["left_out"] or section["status"] == "cut off"]
    late += [section["title"] for section in sections if section["status"] in ("not begun", "under way")]
    if late:
        said.append(f"Not or not wholly measured: {', '.join(late)}.")
    return " ".join(said)


def _shown(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with numbers as text, and what is of first calls in a table of its own."""
    firsts = [row for row in section["rows"] if "program" in row["facts"]]
    found = [dict(row, shown=_number(row)) for row in section["rows"] if row not in firsts]
    return dict(section, rows=found, programs=_programs(firsts), has_goals=any(row["goal"] for row in found))


def _programs(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a row for each program: seconds of compiling it and of its first call, and the memory after it."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        facts = row["facts"]
        of = found.setdefault(facts["program"], {"name": facts["program"], "memory": "-", "detail": ""})
        if facts["what"] == "memory":
            of |= {"memory": _number(dict(row, unit="")), "detail": row["detail"]}
        else:
            of |= {"compiling": f"{row['value']:.1f}", "call": f"{facts['first_call_seconds']:.1f}"}
    return list(found.values())


def _number(row: Mapping[str, Any]) -> str:
    value, unit = row["value"], row["unit"]
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    large = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{large}{unit}" if unit in ("/s", "") else f"{large} {unit}"


def _facts(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the numbers depend on, by name."""
    machine, settings = record["machine"], record["settings"]
    memory = machine["memory_bytes"]
    found = {
        "device": f"{machine['device']} ({machine['platform']}), {machine['devices']} of them",
        "memory": "not counted" if memory is None else f"{memory / 2**30:.1f} GiB for JAX",
        "runtime": machine["platform_version"],
        "processor": machine["processor"],
        "commit": machine["commit"] or "unknown",
        "versions": ", ".join(f"{name} {value}" for name, value in machine["versions"].items()),
        "environment": ", ".join(f"{name}={value}" for name, value in machine["environment"].items()) or "nothing set",
        "settings": ", ".join(f"{name} {_plain(value)}" for name, value in settings.items()),
    }
    return list(found.items())


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
