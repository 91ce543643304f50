"""Dumps of PyTorch's flight recorder, one file for each rank: steps are where its collectives repeat themselves."""

import dataclasses
import io
import json
import math
import pathlib
import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.traces.family import TRACES
from sgdlab.traces.joining import WorkerSteps, each, rank_in, together
from sgdlab.traces.messages import Messages
from sgdlab.traces.options import Options
from sgdlab.traces.paths import files
from sgdlab.traces.phases import collective
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording

_MOST_WITHOUT_WORK = 0.05
_ENDINGS = (*"0123456789", ".json", ".pkl", ".pickle", ".bin")
_BYTES = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Char": 1, "Byte": 1,
          "Bool": 1, "Float8_e5m2": 1, "Float8_e4m3fn": 1, "Float8_e5m2fnuz": 1, "Float8_e4m3fnuz": 1}  # fmt: skip
"""Of a number, by the name of its dtype."""

_TIMING = "set TORCH_NCCL_ENABLE_TIMING=1, so that NCCL's collectives are measured (those of gloo never are)"


def recognises(path: pathlib.Path) -> bool:
    """Tell whether the first of the files is such a dump."""
    found = files(path, _ENDINGS)
    if not found:
        return False
    with found[0].open("rb") as file:
        start = file.read(1 << 16)
    return start[:1] in (b"\x80", b"{") and b"pg_config" in start and b"pg_status" in start


@TRACES.register(
    "nccl_flight_recorder",
    title="PyTorch's flight recorder (NCCL)",
    source="https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
    endings=(),
    recognises=recognises,
)
def nccl_flight_recorder(*, path: str | pathlib.Path, options: Options) -> Recording:
    r"""Reads dumps of the flight recorder, pickled or as JSON, one file for each rank.

    A dump is a list of collectives, without steps: steps are found where the sequence of operations and sizes repeats
    itself. With the time e at which the host enqueued a step's first collective, a step lasts until the next step's e,
    and the rank's own work is that time less the durations of the collectives that were enqueued in it:

    .. math:: d_t = e_{t+1} - e_t - \sum_c D_{t c}

    Only times of one host are compared with one another. Where collectives take more than a step, computation hides
    them; then only what a rank waits longer than the one that waits least counts as communication.

    Sizes and dtypes of the collectives of which steps consist are kept as `messages`.

    Args:
      path: of a directory, a pattern or a file.
      options: `skip_bad_rows` leaves out files that cannot be read.

    Raises:
      BadTrace: where a file cannot be used, or steps cannot be found.

    Source: https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
    """
    dumps: dict[Any, list[dict[str, Any]]] = {}
    groups: dict[str, Any] = {}
    notes: list[str] = []

    def add(file: pathlib.Path) -> None:
        rank, (entries, known) = rank_in(file), _read(file)
        if rank is None:
            raise BadTrace("has no rank in its name: name it nccl_trace_rank_0 and so on")
        if rank in dumps:
            raise BadTrace(f"is a second dump of rank {rank}; there must be one of each rank")
        dumps[rank] = entries
        groups.update(known)

    each(files(path, _ENDINGS), options, notes, add)
    own, group, first = _steps(dumps)
    parts = [_of_rank(rank, entries, own[rank], first) for rank, entries in dumps.items()]
    work = np.concatenate([part.own for part in parts])
    # Single steps may seem to have none, where the host ran ahead of the device.
    if work.size and (work <= 0).mean() > _MOST_WITHOUT_WORK:
        parts = _hidden(parts)
        notes.append(
            "Collectives take longer than steps do, so that computation hides them: only what a rank waits longer than "
            "the one that waits least was taken as communication."
        )
    whole = together(parts, [*notes, "Steps were found where the sequence of collectives repeats itself, and counted."])
    return dataclasses.replace(whole, messages=_messages(own, first, whole.steps, _members(group, groups, own)))


class _Plain(pickle.Unpickler):
    """Reads dictionaries, lists, tuples, texts and numbers, and refuses to import anything."""

    def find_class(self, module: str, name: str) -> Any:
        raise BadTrace(f"asks for {module}.{name}; a dump holds only lists, texts and numbers, so this is not one")

    def persistent_load(self, pid: Any) -> Any:
        raise BadTrace("refers to other data; a dump does not, so this is not one")


def _read(path: pathlib.Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The collectives of a dump, in the order in which they were recorded, and the process groups."""
    raw = path.read_bytes()
    try:
        dump = json.loads(raw) if raw[:1] == b"{" else _Plain(io.BytesIO(raw)).load()
    except BadTrace:
        raise
    except (EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError, pickle.UnpicklingError) as error:
        raise BadTrace(f"is damaged or unfinished: {error}") from error
    entries = dump.get("entries") if isinstance(dump, dict) else None
    if not entries:
        raise BadTrace("has no entries: set TORCH_FR_BUFFER_SIZE (before PyTorch 2.9 TORCH_NCCL_TRACE_BUFFER_SIZE)")
    needed = ("profiling_name", "time_created_ns", "process_group", "collective_seq_id")
    if any(name not in entry for entry in entries for name in needed):
        raise BadTrace(f"has entries without {', '.join(needed)}; dumps since version 2.0 of their format have them")
    if all(entry.get("duration_ms") is None for entry in entries):
        raise BadTrace(f"has no durations: {_TIMING}")
    groups = dump.get("pg_config")
    return entries, groups if isinstance(groups, dict) else {}


_Own = Mapping[str, Mapping[int, dict[str, Any]]]
"""Of each rank, the collectives of the process group by their numbers."""


def _steps(dumps: Mapping[str, Sequence[dict[str, Any]]]) -> tuple[_Own, str, np.ndarray]:
    """The collectives of the group of which all have the most, its name, and the numbers that begin steps."""
    group = _group(dumps)
    own: dict[str, dict[int, dict[str, Any]]] = {
        rank: {entry["collective_seq_id"]: entry for entry in entries if group in _groups(entry)}
        for rank, entries in dumps.items()
    }
    # Every rank of a group gives its collectives the same numbers; the oldest have left the buffers of some.
    every = {number: entry for entries in own.values() for number, entry in entries.items()}
    numbers = np.array(sorted(every))
    parts = ("profiling_name", "input_sizes", "input_dtypes")
    _, kinds = np.unique([str([every[n].get(part) for part in parts]) for n in numbers], return_inverse=True)
    longest = max(own.values(), key=len)
    start = min(entry["time_created_ns"] for entry in longest.values())
    created = np.array([(longest[n]["time_created_ns"] - start) * 1e-9 if n in longest else np.nan for n in numbers])
    first = step_begins(kinds, np.diff(created, prepend=np.nan))
    if first is None or first.size < 2:
        raise BadTrace(
            f"{numbers.size} collectives of process group {group!r} do not repeat themselves, so that steps cannot be "
            "found: enlarge TORCH_FR_BUFFER_SIZE, so that it holds several steps"
        )
    return own, group, numbers[first]


def _members(group: str, groups: Mapping[str, Any], own: _Own) -> int:
    """The number of ranks of the process group, as it is configured, or of those that were dumped."""
    known = [config for config in groups.values() if isinstance(config, dict)]
    ranks = [config.get("ranks") for config in known if group in (config.get("name"), config.get("desc"))]
    return len(re.findall(r"[0-9]+", str(ranks[0]))) if ranks else len(own)


def _messages(own: _Own, first: np.ndarray, steps: np.ndarray, members: int) -> tuple[Messages, ...]:
    """The collectives between the begins of two steps that all ranks have measured, by name, size and dtype."""
    if members < 2:
        return ()
    found: dict[tuple[str, float, float], list[list[float]]] = defaultdict(lambda: [[] for _ in steps])
    for row, step in enumerate(steps.tolist()):
        for number in range(first[step], first[step + 1]):
            entries = [of_rank.get(number, {}) for of_rank in own.values()]
            measured: list[Any] = [entry.get("duration_ms") for entry in entries]
            if None not in measured and (kind := _kind(entries[0])) and (size := _size(entries[0])):
                found[kind, *size][row].append(min(measured) * 1e-3)
    most = {key: max(map(len, of_key)) for key, of_key in found.items()}
    return tuple(
        Messages(*key, members, np.array([[*each, *[np.nan] * (most[key] - len(each))] for each in of_key]))
        for key, of_key in sorted(found.items())
    )


def _size(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """The bytes that a rank hands to a collective, and the bits of a number of them; None where they are unknown."""
    try:
        numbers = [math.prod(shape) for shape in entry["input_sizes"]]
        size = sum(number * _BYTES[dtype] for number, dtype in zip(numbers, entry["input_dtypes"], strict=True))
    except (KeyError, TypeError, ValueError):
        return None
    return (float(size), 8 * size / sum(numbers)) if size else None


def _kind(entry: Mapping[str, Any]) -> str | None:
    return collective(f"nccl:{entry['profiling_name'].partition(':')[2]}")


def _groups(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The names by which an entry's process group may be known on all ranks; none if it is no collective."""
    return (
        () if entry.get("is_p2p") else tuple(name for name in entry["process_group"] if name not in ("", "undefined"))
    )


def _group(dumps: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """The process group, by name or description, of which all ranks have the most collectives."""
    counts = [Counter(name for entry in entries for name in _groups(entry)) for entries in dumps.values()]
    common = set.intersection(*(set(count) for count in counts))
    if not common:
        raise BadTrace("has no process group in which all ranks have collectives")
    return max(sorted(common), key=lambda name: min(count[name] for count in counts))


def _of_rank(
    rank: str, entries: Sequence[dict[str, Any]], own: Mapping[int, dict[str, Any]], first: np.ndarray
) -> WorkerSteps:
    # Nanoseconds since 1970 are more than a float64 holds.
    start = min(entry["time_created_ns"] for entry in entries)
    begins = np.array([(own[n]["time_created_ns"] - start) * 1e-9 if n in own else np.nan for n in first])
    rows = np.flatnonzero(~np.isnan(begins[:-1]) & ~np.isnan(begins[1:]))
    created = np.array([(entry["time_created_ns"] - start) * 1e-9 for entry in entries])
    # A duration that was not measured makes its step unknown.
    durations = np.array([np.nan if entry.get("duration_ms") is None else entry["duration_ms"] for entry in entries])
    kinds: list[Any] = [_kind(entry) for entry in entries]
    known = np.flatnonzero(~np.isnan(begins))
    place = known[np.maximum(np.searchsorted(begins[known], created, side="right") - 1, 0)] if known.size else known
    times = {}
    for kind in sorted(set(kinds)):
        mine = np.array([name == kind for name in kinds]) & (created >= begins[place])
        times[kind] = np.bincount(place[mine], durations[mine] * 1e-3, begins.size)[rows]
    work = begins[rows + 1] - begins[rows] - sum(times.values(), np.zeros(rows.size))
    return WorkerSteps(rank, rows, work, times, {}, start * 1e-9 + begins[rows])


def _hidden(parts: Sequence[WorkerSteps]) -> list[WorkerSteps]:
    """The same steps, where only waiting is communication, because computation hides the transfers."""
    least: dict[tuple[str, int], float] = {}
    for part in parts:
        for name, times in part.communication.items():
            for step, time in zip(part.steps.tolist(), times.tolist(), strict=True):
                least[name, step] = min(time, least.get((name, step), np.inf))
    changed = []
    for part in parts:
        times = part.communication
        transfer = {name: np.array([least[name, step] for step in part.steps.tolist()]) for name in times}
        own = part.own + sum(transfer.values(), np.zeros(part.steps.size))
        waiting = {name: times[name] - transfer[name] for name in times}
        changed.append(dataclasses.replace(part, own=own, communication=waiting))
    return changed


_LONGEST = 4096


def period(kinds: np.ndarray) -> tuple[int, int, int] | None:
    """Return the period of the longest stretch that repeats itself.

    With the longest run of i to j - 1 in which every operation, of these kinds, is followed by its like p later, the
    stretch is i to j - 1 + p; of several p with a stretch of that length the shortest is taken. It must hold two
    periods. Given are the period, and the stretch's begin and end; None if nothing repeats itself.

    Example:
      >>> period(np.array([9, 0, 0, 1, 0, 0, 1, 0, 0, 1, 8]))
      (3, 1, 10)
    """
    best, found = 0, None
    for length in range(1, min(kinds.size // 2, _LONGEST) + 1):
        same = np.concatenate([[0], kinds[length:] == kinds[:-length], [0]]).astype(np.int8)
        edges = np.flatnonzero(np.diff(same))
        begins, ends = edges[::2], edges[1::2]
        if begins.size == 0:
            continue
        longest = int(np.argmax(ends - begins))
        stretch = int(ends[longest] - begins[longest]) + length
        if stretch >= 2 * length and stretch > best:
            best, found = stretch, (length, int(begins[longest]), int(begins[longest]) + stretch)
    return found


def step_begins(kinds: np.ndarray, gaps: np.ndarray) -> np.ndarray | None:
    """Return the operations with which steps begin.

    A step begins behind the longest gap, the forward pass. Where an operation comes once a period, steps begin with
    the one of these that has the longest gap before it, wherever it comes; else steps are counted off in the stretch
    that repeats itself.

    Of K operations in order, kinds int64[K] and gaps float64[K] are known, seconds since the operation before, NaN
    where unknown. Given are int64[S], indices among the K; None if nothing repeats itself.

    Example:
      >>> kinds = np.array([9, 0, 1, 0, 1, 7, 0, 1])
      >>> step_begins(kinds, np.array([np.nan, 5.0, 1.0, 5.0, 1.0, 9.0, 5.0, 1.0]))
      array([1, 3, 6])
    """
    if (found := period(kinds)) is None:
        return None
    length, first, last = found
    phase = (np.arange(first, last) - first) % length
    waited = [_median(gaps[first:last][phase == place]) for place in range(length)]
    once = [place for place in range(length) if (kinds[first : first + length] == kinds[first + place]).sum() == 1]
    place = max(once or range(length), key=lambda place: waited[place])
    if once:
        return np.flatnonzero(kinds == kinds[first + place])
    return np.arange(first + place, last, length)


def _median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else -np.inf
