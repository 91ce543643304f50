"""The tables of the page that helps to choose a method."""

import math

from docs.making import measured, simulated, tables, tuned
from sgdlab.rules.family import RULES
from sgdlab.runs.methods import Method, methods


def speeds() -> str:
    """Return gradients per second of every protocol on four clusters, those of synchronous SGD as 1."""
    rows, seen = [], set()
    for method in methods().values():
        key = simulated.waiting(method)
        if key in seen:
            continue
        seen.add(key)
        found = simulated.speeds(method)
        if found:
            cells = [f"{found[cluster].speedup:.2f}" if cluster in found else "-" for cluster in simulated.CLUSTERS]
            rows.append([_waits(method), *cells, _staleness(found)])
    return tables.table(["protocol", *simulated.CLUSTERS, "staleness, unequal"], rows)


def certificates(cluster: str) -> str:
    """Return how far gradients are from their use on one of the clusters, and whose are used, protocol by protocol."""
    rows, seen = [], set()
    for method in methods().values():
        key, speed = simulated.waiting(method), simulated.speeds(method).get(cluster)
        if speed is not None and key not in seen and not method.local:
            distance = "-" if speed.distance is None else str(speed.distance)
            rows.append([_waits(method), distance, tables.number(speed.staleness, 1), f"{speed.effective:.1f}"])
        seen.add(key)
    return tables.table(["protocol", "R", "mean staleness", "effective workers"], rows)


def family(title: str) -> str:
    """Return the methods whose own family it is, as links.

    Raises:
      ValueError: where there is none.
    """
    found = [_link(method) for method in methods().values() if method.families[:1] == (title,)]
    if not found:
        raise ValueError(f"title={title!r} must be a family of methods")
    return ", ".join(found)


def weighs_alike(method: Method) -> bool:
    """Return whether a method's rule weighs all workers alike, however many of their gradients are used.

    Example:
      >>> weighs_alike(methods()["ringleader"]), weighs_alike(methods()["asgd"])
      (True, False)
    """
    return RULES[method.rule].facts.balances_workers


def balanced() -> str:
    """Return the methods whose rules weigh all workers alike, whatever they are sent, as links."""
    return ", ".join(_link(method) for method in methods().values() if weighs_alike(method)) or "none"


def not_measured_of(title: str) -> str:
    """Return the methods of a family that the stored comparison lacks, as a sentence; empty where it has all."""
    have = {row.method for row in measured.rows()}
    here = [method for method in methods().values() if method.families[:1] == (title,)]
    lacking = [_link(method) for method in here if method.name not in have]
    if lacking and len(lacking) == len(here):
        return "None of them is trained in the stored comparison yet."
    return f"Not trained in the stored comparison yet: {', '.join(lacking)}." if lacking else ""


def clusters() -> str:
    """Return the flags of each of these clusters."""
    return tables.table(
        ["cluster", "flags"], [[f"{name}", f"`{simulated.flags(name)}`"] for name in simulated.CLUSTERS]
    )


def trained(count: int) -> str:
    """Return every method that was measured at a number of workers, the first to 95 % first."""
    known = methods()
    found = [row for row in measured.rows() if row.num_workers == count and not row.serial and row.method in known]
    found.sort(key=lambda row: (math.isnan(row.seconds_to_target), row.seconds_to_target, -row.accuracy[0]))
    rows = [[_link(known[row.method]), *tables.trained(row)[1:]] for row in found]
    return tables.table(["method", *tables.TRAINED[1:]], rows)


def at_their_best(workload: str) -> str:
    """Return every method that was tuned on a workload, the first to 95 % first."""
    known = methods()
    rows = [[_link(known[row.method]), *tuned.cells(row)] for row in tuned.on(workload)]
    return tables.table(["method", *tuned.HEADINGS], rows) if rows else "Not tuned yet."


def first(workload: str) -> str:
    """Return the methods that are statistically indistinguishable from the fastest on a workload, as links."""
    known = methods()
    found = [_link(known[row.method]) for row in tuned.on(workload) if row.first]
    return ", ".join(found) if found else "not tuned yet"


def tuned_time(method: str, workload: str) -> str:
    """Return the median seconds to 95 % of a tuned method, such as "699 s"."""
    row = next((row for row in tuned.on(workload) if row.method == method), None)
    if row is None:
        return "not tuned yet"
    return f"{row.seconds[0]:,.0f} s" if math.isfinite(row.seconds[0]) else "never"


def not_tuned() -> str:
    """Return the methods that are tuned on no workload, as a sentence; empty where there are none."""
    missing = [_link(method) for name, method in methods().items() if not tuned.of(name)]
    return f"Not tuned yet: {', '.join(missing)}." if missing else "Every method is tuned on some workload."


def not_measured() -> str:
    """Return the methods that the stored comparison lacks, as a sentence; empty where it has all."""
    have = {row.method for row in measured.rows()}
    missing = [_link(method) for name, method in methods().items() if name not in have]
    return f"Not measured yet: {', '.join(missing)}." if missing else "Every method is in the table."


def made() -> str:
    """Return how the stored comparison was made."""
    known = measured.made()
    made_by = f"sgdlab {known['version']}, commit {known['commit']}"
    return f"`{known['command']}`, on {known['hardware']}, {known['when']}, {made_by}"


def speedup(method: str, cluster: str) -> str:
    """Return gradients per second of a method's protocol over those of synchronous SGD on one of the four clusters."""
    return f"{simulated.speeds(methods()[method])[cluster].speedup:.2f}"


def effective(method: str, cluster: str) -> str:
    """Effective workers of a method's protocol on one of the four clusters."""
    return f"{simulated.speeds(methods()[method])[cluster].effective:.1f}"


def lost(count: int) -> str:
    """Return the methods of which some seed diverged, as a list of links."""
    known = methods()
    names = [
        f"{_link(known[row.method])} ({row.diverged} of {row.seeds} seeds)"
        for row in measured.rows()
        if row.num_workers == count and not row.serial and row.diverged and row.method in known
    ]
    return ", ".join(names) or "none"


def _waits(method: Method) -> str:
    return f"[asynchronous](methods/{method.name}.md)" if method.protocol == "asynchronous" else _link(method)


def _link(method: Method) -> str:
    return f"[{method.title}](methods/{method.name}.md)"


def _staleness(found: dict[str, simulated.Speed]) -> str:
    return tables.number(found["unequal workers"].staleness, 1) if "unequal workers" in found else "-"
