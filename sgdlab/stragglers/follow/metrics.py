"""`Metrics`, what a `Follower` has found as Prometheus reads it, over HTTP; `METRICS` is the table of what there is.

The number of time series does not grow with the fleet: a worker has one of its own where it is one of at most
`MOST_NAMED`, or where an alarm that is not over names it; all workers are in one histogram.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeHistogramMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sgdlab.errors import UsageError
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, HANGS, PAUSES, SILENT, SLOW_NODE, SLOW_WORKER
from sgdlab.stragglers.follow.alarms import CLEARED, NAMED, RAISED, WORSE
from sgdlab.stragglers.follow.follower import Follower
from sgdlab.stragglers.follow.outbox import Outbox

MOST_NAMED = 50
BUCKETS = (0.5, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
KINDS = (SLOW_WORKER, SLOW_NODE, ALL_SLOWER, PAUSES, SILENT, HANGS)


class Row(NamedTuple):
    """Names a metric, as Prometheus shows it, its labels, and what it is."""

    name: str
    labels: tuple[str, ...]
    meaning: str


METRICS = (
    Row("sgdlab_steps_total", (), "Steps that were read."),
    Row("sgdlab_last_step_age_seconds", (), "Seconds since the trace grew."),
    Row("sgdlab_usual_step_seconds", (), "Median of the last 100 steps: seconds of the slowest worker's own work."),
    Row("sgdlab_workers", (), "Workers of the trace."),
    Row("sgdlab_goodput_seconds_total", (), "Seconds of steps that were needed, about 50 steps later."),
    Row("sgdlab_badput_seconds_total", ("cause",), "Seconds of steps that were lost to a cause, about 50 steps later."),
    Row("sgdlab_alarms_total", ("kind", "event"), "Alarms since the trace was begun to be read."),
    Row("sgdlab_standing_alarms", ("kind",), "Alarms that are not over."),
    Row(
        "sgdlab_straggler_factor_ratio",
        ("worker", "node"),
        "A worker's compute time over the median of those without an alarm, by its last 100 steps.",
    ),
    Row("sgdlab_worker_factor_ratio", ("le",), "The same of all workers, a histogram of this moment."),
    Row("sgdlab_undelivered_alarms_total", ("to",), "Alarms that --webhook or --otlp gave up, or dropped."),
)
"""All metrics; their types follow from their names."""

_AGE, _FACTORS = "sgdlab_last_step_age_seconds", "sgdlab_worker_factor_ratio"
_Values = Iterable[tuple[Sequence[str], float]]


class Metrics(Collector):
    """Holds the metrics of a follower, in a registry of their own.

    `update` is called by who reads the trace; Prometheus is answered by other threads, with what was there then.

    Args:
      follower: what reads the trace.
      outboxes: where alarms are sent.
    """

    def __init__(self, follower: Follower, outboxes: Sequence[Outbox] = ()):
        self._follower, self._outboxes = follower, outboxes
        self._families: list[Metric] = []
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self.update()

    def update(self) -> None:
        """Takes the follower's state."""
        factors = self._follower.monitor.scores().against_fleet
        values = self._values(factors)
        families = [_family(row, values[row.name]) for row in METRICS if row.name in values]
        known = factors[np.isfinite(factors)]
        counts = [float((known <= bound).sum()) for bound in (*BUCKETS, np.inf)]
        buckets = list(zip([*map(str, BUCKETS), "+Inf"], counts, strict=True))
        meaning = next(row.meaning for row in METRICS if row.name == _FACTORS)
        self._families = [*families, GaugeHistogramMetricFamily(_FACTORS, meaning, buckets, float(known.sum()))]

    def collect(self) -> Iterator[Metric]:
        """Give the metrics to Prometheus."""
        yield from self._families
        age = next(row for row in METRICS if row.name == _AGE)
        yield _family(age, [((), self._follower.idle)])

    def _values(self, factors: np.ndarray) -> Mapping[str, _Values]:
        follower, monitor = self._follower, self._follower.monitor
        standing = [alarm.kind for alarm in follower.standing]
        events = [(kind, event) for kind in KINDS for event in (RAISED, NAMED, WORSE, CLEARED)]
        usual = monitor.usual if monitor.blocks else np.nan
        return {
            "sgdlab_steps_total": [((), monitor.steps)],
            "sgdlab_usual_step_seconds": [((), usual)] if np.isfinite(usual) else [],
            "sgdlab_workers": [((), len(monitor.workers))],
            "sgdlab_goodput_seconds_total": [((), monitor.lost.good)],
            "sgdlab_badput_seconds_total": [((cause,), lost) for cause, lost in monitor.lost.lost.items()],
            "sgdlab_alarms_total": [(each, follower.counts[each]) for each in events],
            "sgdlab_standing_alarms": [((kind,), standing.count(kind)) for kind in KINDS],
            "sgdlab_straggler_factor_ratio": list(self._named(factors)),
            "sgdlab_undelivered_alarms_total": [((box.name,), box.lost) for box in self._outboxes],
        }

    def _named(self, factors: np.ndarray) -> _Values:
        follower, monitor = self._follower, self._follower.monitor
        workers, shown = monitor.workers, range(factors.size)
        if len(workers) > MOST_NAMED:
            named = {name for alarm in follower.standing for name in alarm.workers}
            slowest = np.argsort(-np.nan_to_num(factors), kind="stable")
            shown = [index for index in slowest.tolist() if workers[index] in named][:MOST_NAMED]
        for index in shown:
            if np.isfinite(factors[index]):
                node = monitor.nodes[index] if monitor.nodes else ""
                yield (workers[index], str(node or "")), float(factors[index])


def _family(row: Row, values: _Values) -> Metric:
    counts = row.name.endswith("_total")
    made = (CounterMetricFamily if counts else GaugeMetricFamily)(row.name, row.meaning, labels=row.labels)
    for labels, value in values:
        made.add_metric(labels, float(value))
    return made


@contextlib.contextmanager
def served(registry: CollectorRegistry, address: str, *, flag: str = "--metrics") -> Iterator[str]:
    """Serves a registry at HOST:PORT, or at PORT of this machine alone, and gives the address to scrape.

    Raises:
      UsageError: where that is no address, or it cannot be used; it names the flag.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise UsageError(f"{flag}={address} must be HOST:PORT, such as 127.0.0.1:9100, or a port of this machine alone")
    host = host.strip("[]") or "127.0.0.1"
    try:
        server, _ = start_http_server(int(port), host, registry)
    except OSError as error:
        raise UsageError(f"{flag}={address} cannot be used ({error.strerror}): 127.0.0.1:0 takes a free port") from None
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
