"""`markdown`, the README's table of speeds from a record; `rows`, the same for the page."""

import textwrap
from collections.abc import Mapping
from typing import Any

COLUMNS = ("dtype", "workers", "serial SGD", "event mode", "wave mode")


def rows(record: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each dtype and number of workers: gradients per second and their ratio to serial SGD."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    for facts in _facts(record, "float32", "bfloat16"):
        if "per_second" in facts:
            times = f" ({facts['over_serial']:.2f})" if "over_serial" in facts else ""
            of = found.setdefault((facts["dtype"], facts["workers"]), {})
            of[facts["mode"]] = f"{facts['per_second']:,.0f}{times}"
    return [
        (dtype, str(workers), *(of.get(mode, "-") for mode in ("serial", "event", "wave")))
        for (dtype, workers), of in found.items()
    ]


def caption(record: Mapping[str, Any]) -> str:
    """Return what was timed, and where: one or two sentences."""
    machine, settings = record["machine"], record["settings"]
    device = f"{machine['processor']}, {machine['versions']['cpus']} cores" if machine["is_cpu"] else machine["device"]
    seeds = [
        f"{facts['over_one']:.2f} with {facts['runs']}"
        for facts in _facts(record, "seeds")
        if facts.get("lanes") == "vmap"
    ]
    pixels = settings["pixels"]
    text = (
        f"{settings['network']}, batches of {settings['batch']} images of {pixels} x {pixels} pixels, on {device}, jax "
        f"{machine['versions']['jax']}, {record['began'][:10]}: gradients per second and, in brackets, the ratio to "
        "serial SGD in the same rounds."
    )
    if seeds:
        text += f" Seeds as one program, over one seed in event mode: {', '.join(seeds)}."
    return text


def markdown(record: Mapping[str, Any]) -> str:
    """Return the table for the README, with its caption.

    Raises:
      ValueError: if the record has no speeds, such as one of other sections.
    """
    found = rows(record)
    if not found:
        raise ValueError("record must have speeds: run the sections float32 and bfloat16")
    lines = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1)), *found]
    return "\n".join([textwrap.fill(caption(record), 120), "", *(f"| {' | '.join(line)} |" for line in lines)])


def _facts(record: Mapping[str, Any], *names: str) -> list[Mapping[str, Any]]:
    return [row["facts"] for section in record["sections"] if section["name"] in names for row in section["rows"]]
