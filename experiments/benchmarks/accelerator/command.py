"""Checks and times sgdlab on this machine's accelerator in at most nine minutes; one JSON file and one page.

    python -m experiments.benchmarks accelerator
    python -m experiments.benchmarks accelerator --sections=modes,devices --minutes=3 --output=runs/checked
    python -m experiments.benchmarks accelerator --table=runs/accelerator/accelerator.json

Checks, each with a tolerance: event against wave mode, lanes by vmap and by map, a mesh of one device, CPU against
accelerator in float32 and float64, a checkpoint made on one and continued on the other, and a live record replayed.
Timings: gradients per second of ResNet-20 serially, in event and in wave mode for N = 8, 32 and 128 in float32 and
bfloat16, seeds as one program (1, 4 and 16), the rule's share of a step, memory against N, and seconds of compiling.

Everything is written after every measurement, so that a run which is cut off leaves what it had measured. What fails is
recorded with its error, and the rest goes on. The exit code is 1 if a check failed, a measurement raised an error or
the time was up in the middle of one. Without an accelerator all is small, and compares the CPU with itself.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Sequence

import jax

from experiments.benchmarks.accelerator import checks, live, page, speeds, table
from experiments.benchmarks.accelerator.bench import Bench, Limit, measure
from experiments.benchmarks.accelerator.problems import in_64_bits
from experiments.benchmarks.accelerator.record import JSON, PAGE, Record, Section
from experiments.benchmarks.accelerator.sizes import SCALES
from sgdlab import files

MINUTES = 8.5
"""By default; to import JAX and to find the device takes some seconds before."""
OUTPUT = "runs/accelerator"


def sections() -> dict[str, Section]:
    """Return all sections by name, in their order: what is checked comes before what is timed."""
    return {section.name: section for section in (*checks.sections(), live.section(), *speeds.sections())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    known = sections()
    given = _parsed(arguments, known)
    if given.table is not None:
        try:
            print(table.markdown(json.loads(given.table.read_text(encoding="utf-8"))))
        except (ValueError, KeyError) as error:
            print(f"--table={given.table}: {error}", file=sys.stderr)
            return 2
        return 0
    _prepare()
    folder = given.output
    there = [folder / name for name in (JSON, PAGE) if (folder / name).exists()]
    if there:
        print(f"What was in {folder} is in {files.put_aside(there)} now.", flush=True)
    name = "cpu" if jax.devices()[0].platform == "cpu" else "accelerator"
    scale = SCALES["toy" if given.toy else name]
    sizes = scale.timings
    settings = {"scale": scale.name, "minutes": given.minutes, "sections": given.sections}
    settings |= {"network": sizes.network, "pixels": sizes.pixels, "batch": sizes.batch, "workers": sizes.workers}
    settings |= {"gradients": sizes.gradients, "seeds": sizes.seeds, "rounds": sizes.rounds}
    settings |= {"checked_gradients": scale.gradients, "checked_workers": scale.workers}
    chosen = [known[name] for name in given.sections]
    bench = Bench(scale, 60 * given.minutes)
    with in_64_bits(False):  # as users have it; what is checked in float64 says so itself
        record = Record(folder, chosen, settings, page.render)
        print(f"{bench.device.device_kind}, jax {jax.__version__}: {', '.join(given.sections)}", flush=True)
        with Limit(record, bench.seconds):
            measure(bench, record, chosen)
        code = record.end()
    print(page.verdict(record.data))
    with contextlib.suppress(ValueError):  # nothing was timed
        print(f"\n{table.markdown(record.data)}\n")
    print(f"Written: {folder / PAGE}, {folder / JSON}", flush=True)
    return code


def _parsed(arguments: Sequence[str] | None, known: dict[str, Section]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.benchmarks accelerator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    every, default = ",".join(known), "(default: %(default)s)"
    parser.add_argument("--sections", default=every, metavar="NAMES", help=f"what is measured {default}")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"of the whole run, at most {default}")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(OUTPUT), help=f"folder {default}")
    parser.add_argument("--toy", action="store_true", help="the smallest sizes, as in the tests: they time nothing")
    parser.add_argument(
        "--table", type=pathlib.Path, metavar="FILE", help="print the table of docs/speed.md of a JSON file"
    )
    given = parser.parse_args(arguments)
    given.sections = given.sections.split(",")
    for name in given.sections:
        if name not in known:
            parser.error(f"--sections={name} must be some of {every}")
    given.sections = [name for name in known if name in given.sections]  # memory is measured first
    if not given.minutes > 0:
        parser.error(f"--minutes={given.minutes:g} must be above 0")
    if given.table is not None and not given.table.is_file():
        parser.error(f"--table={given.table} must be a file that this command has written")
    return given


def _prepare() -> None:
    """Sets what JAX reads when it is first used: a CPU beside the accelerator, and memory only as it is needed.

    Where JAX was used before, as in a test, all is left as it is.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the workers of a live run share the device
    platforms = [name for name in (jax.config.jax_platforms or "").split(",") if name]
    with contextlib.suppress(RuntimeError):
        if platforms and "cpu" not in platforms:
            jax.config.update("jax_platforms", ",".join([*platforms, "cpu"]))
        if "device_count" not in os.environ.get("XLA_FLAGS", ""):
            jax.config.update("jax_num_cpu_devices", 2)
