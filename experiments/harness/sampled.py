"""A sample of a figure's runs, and the figure at the scale smoke, as a program that an older checkout can do too.

`experiments.harness.restamp` executes this file's text in two checkouts, and compares what they write. So it uses only
what every checkout has had under these names.
"""

import collections
import hashlib
import json
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np

import sgdlab
from experiments.harness import Session, Sweep, command, dry, figures, prepare, within

if (pathlib.Path(sgdlab.__file__).parent / "runs/experiment.py").exists():  # a missing module could be another's
    from sgdlab.runs import digests
    from sgdlab.runs.experiment import resolve
    from sgdlab.runs.work import digest_now, name_of, parts_of_code

    def used_parts(settings: Any) -> Any:
        """Return the parts that a configuration uses, by family."""
        return resolve(settings).parts
else:  # a checkout of before, in which the harness did sweeps and a configuration was read again and again
    from sgdlab.jobs.configuration import used_parts

    from experiments.harness.runs import digest_now, name_of, parts_of_code
    from sgdlab.jobs import digests


def kind_of(work: Any, settings: Any) -> str:
    """Return what a run has in common with those of the same code: its work and its parts, by name."""
    parts = used_parts(settings) if "method" in settings and hasattr(settings, "to_dict") else {}
    return json.dumps([name_of(work), {family: part.name for family, part in sorted(parts.items())}])


def name_of_run(work: Any, point: Any) -> str:
    """Return the name of a run that is the same in every checkout."""
    return json.dumps([name_of(work), point.varied], sort_keys=True, default=str)


def sample(asked: list[tuple[Any, Any]], count: int) -> dict[str, tuple[Any, Any]]:
    """Return some runs of each kind, by name; which, a hash of their names decides."""
    names = collections.Counter(name_of_run(work, point) for work, point in asked)
    kinds: dict[str, dict[str, tuple[Any, Any]]] = collections.defaultdict(dict)
    for work, point in asked:
        if names[name := name_of_run(work, point)] == 1:  # else it cannot be told from another
            kinds[kind_of(work, point.settings)][name] = work, point
    order = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    return {name: runs[name] for runs in kinds.values() for name in sorted(runs, key=order.__getitem__)[:count]}


def data_of(settings: Any) -> str:
    """Return the digest of all examples that a configuration trains and tests on."""
    dataset = resolve(settings).data.dataset
    whole = hashlib.sha256()
    for part in (dataset.train, dataset.test):
        for array in (part.pixels, part.labels):
            values = np.ascontiguousarray(array)
            whole.update(f"{values.dtype} {values.shape}".encode())
            whole.update(values.tobytes())
    return whole.hexdigest()


def outcome(
    name: str, scale: str, count: int, code: dict[str, str], *, same_code: bool, only_data: bool, jobs: int | None
) -> dict[str, Any]:
    """Return what this checkout makes of a figure.

    Args:
      name: of the figure.
      scale: of the runs.
      count: runs of a kind.
      code: digests of a stored result.
      same_code: do nothing where the code is another here.
      only_data: compare the examples of all runs, instead of what a sample of runs makes of them.
      jobs: processes at once.

    Returns:
      `changed`, names of `code` whose digest is another here; `code`, digests as they are here; `runs`, the records of
      the sample by name, or the digests of their examples; `table`, the text of the figure's table at the scale smoke.
    """
    find = getattr(figures, "find_figure", None) or figures.find  # as older checkouts call it
    made = find(name)
    now = {"figure": digests.of_code(made.make)}
    now |= {part: digest for part in code if part not in now and (digest := digest_now(part))}
    changed = [part for part, digest in code.items() if now.get(part) != digest]
    if changed and same_code:
        return {"changed": changed}
    with tempfile.TemporaryDirectory(prefix="sampled-") as folder:
        path = pathlib.Path(folder)
        missing = list(dry.foresee(made, scale, {}, Session(path)).noted.missing.values())
        if only_data:
            runs = {}
            for work, point in missing:
                now |= (used := parts_of_code(work, point.settings))
                if any(part.startswith("data:") for part in used):
                    runs[name_of_run(work, point)] = data_of(point.settings)
            return {"changed": changed, "code": now, "runs": runs, "table": ""}
        sweeps = {run: Sweep(point.settings, [{}], work=work) for run, (work, point) in sample(missing, count).items()}
        with within(Session(path, jobs=jobs)):
            prepare(*sweeps.values())
            runs = {run: sweep.records()[0][1] for run, sweep in sweeps.items()}
        smoke = command.produce(made, "smoke", {}, Session(path / "smoke", jobs=1))
        table = (smoke / "table.csv").read_text(encoding="utf-8")
    for work, point in missing:
        now |= parts_of_code(work, point.settings)
    return {"changed": changed, "code": now, "runs": runs, "table": table}


if __name__ == "__main__":
    given = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    pathlib.Path(sys.argv[2]).write_text(json.dumps(outcome(**given)), encoding="utf-8")
