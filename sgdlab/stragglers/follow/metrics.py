"""`Metrics`, what a `Follower` has found as Prometheus reads it, over HTTP; `METRICS` is the table of what there is.

The number of time series does not grow with the fleet: a worker has one of its own where it is one of at most
`MOST_NAMED`, or where an alarm that is not over names it; all workers are in one histogram.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeHistogramMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sgdlab.errors import UsageError
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, HANGS, PAUSES, SILENT, SLOW_NODE, SLOW_WORKER
from sgdlab.stragglers.follow.alarms import CLEARED, NAMED, RAISED, WORSE, Alarm
from sgdlab.stragglers.follow.follower import Follower
from sgdlab.stragglers.follow.outbox import Outbox

MOST_NAMED = 50
BUCKETS = (0.5, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
KINDS = (SLOW_WORKER, SLOW_NODE, ALL_SLOWER, PAUSES, SILENT, HANGS)
_AGE, _FACTORS = "sgdlab_last_step_age_seconds", "sgdlab_worker_factor_ratio"

METRICS: dict[str, tuple[tuple[str, ...], str]] = {
    "sgdlab_steps_total": ((), "Steps that were read."),
    _AGE: ((), "Seconds since the trace grew."),
    "sgdlab_usual_step_seconds": ((), "Seconds of the slowest worker's own work, the median of the last 100 steps."),
    "sgdlab_workers": ((), "Workers of the trace."),
    "sgdlab_goodput_seconds_total": ((), "Seconds of steps that were needed, about 50 steps later."),
    "sgdlab_badput_seconds_total": (("cause",), "Seconds of steps that a cause has cost, about 50 steps later."),
    "sgdlab_alarms_total": (("kind", "event"), "Alarms since the beginning of the trace."),
    "sgdlab_standing_alarms": (("kind",), "Alarms that are not over; pauses never stand."),
    "sgdlab_straggler_factor_ratio": (
        ("worker", "node"),
        "A worker's compute time over the median of those without an alarm, in the last 100 steps.",
    ),
    _FACTORS: (("le",), "The same of all workers, a histogram of this moment."),
    "sgdlab_undelivered_alarms_total": (("to",), "Alarms that --webhook or --otlp has given up or dropped."),
}
"""Name -> labels and meaning; a name that ends in _total is a counter's."""

_Values = Iterable[tuple[Sequence[str], float]]


class Metrics(Collector):
    """Holds the metrics of a follower, in a `registry` of their own.

    Who reads the trace calls `update`; Prometheus is answered by other threads, with what was there then.

    Args:
      follower: what reads the trace.
      outboxes: where alarms are sent.
    """

    def __init__(self, follower: Follower, outboxes: Sequence[Outbox] = ()):
        self._follower, self._outboxes = follower, outboxes
        self.update()
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def update(self) -> None:
        """Takes the follower's state."""
        factors = self._follower.monitor.scores().against_fleet
        families = [_family(name, found) for name, found in self._values(factors).items()]
        known = factors[np.isfinite(factors)]
        counts = [float((known <= bound).sum()) for bound in (*BUCKETS, np.inf)]
        buckets = list(zip([*map(str, BUCKETS), "+Inf"], counts, strict=True))
        total = float(known.sum())
        self._families = [*families, GaugeHistogramMetricFamily(_FACTORS, METRICS[_FACTORS][1], buckets, total)]

    def collect(self) -> Iterator[Metric]:
        """Give the metrics to Prometheus."""
        yield from self._families
        yield _family(_AGE, [((), self._follower.idle)])

    def _values(self, factors: np.ndarray) -> Mapping[str, _Values]:
        follower, monitor = self._follower, self._follower.monitor
        standing = follower.standing  # which estimates each anew
        kinds = [alarm.kind for alarm in standing]
        events = [(kind, event) for kind in KINDS for event in (RAISED, NAMED, WORSE, CLEARED)]
        usual = monitor.usual
        return {
            "sgdlab_steps_total": [((), monitor.steps)],
            "sgdlab_usual_step_seconds": [((), usual)] if np.isfinite(usual) else [],
            "sgdlab_workers": [((), len(monitor.workers))],
            "sgdlab_goodput_seconds_total": [((), monitor.lost.good)],
            "sgdlab_badput_seconds_total": [((cause,), lost) for cause, lost in monitor.lost.lost.items()],
            "sgdlab_alarms_total": [(each, follower.counts[each]) for each in events],
            "sgdlab_standing_alarms": [((kind,), kinds.count(kind)) for kind in KINDS if kind != PAUSES],
            "sgdlab_straggler_factor_ratio": self._of_workers(factors, standing),
            "sgdlab_undelivered_alarms_total": [((box.name,), box.lost) for box in self._outboxes],
        }

    def _of_workers(self, factors: np.ndarray, standing: Iterable[Alarm]) -> _Values:
        monitor, shown = self._follower.monitor, np.argsort(-np.nan_to_num(factors), kind="stable").tolist()
        if len(shown) > MOST_NAMED:
            named = {name for alarm in standing for name in alarm.workers}
            shown = [index for index in shown if monitor.workers[index] in named][:MOST_NAMED]
        nodes = monitor.nodes or [""] * factors.size
        return [
            ((monitor.workers[index], nodes[index] or ""), factors[index])
            for index in shown
            if np.isfinite(factors[index])
        ]


def _family(name: str, values: _Values) -> Metric:
    labels, meaning = METRICS[name]
    made = (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(name, meaning, labels=labels)
    for given, value in values:
        made.add_metric(given, float(value))
    return made


@contextlib.contextmanager
def served(registry: CollectorRegistry, address: str) -> Iterator[str]:
    """Serves a registry at HOST:PORT, or at PORT of this machine alone, and gives the address to scrape.

    Raises:
      UsageError: where that is no address, or it cannot be used.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--metrics={address} must be HOST:PORT, such as 127.0.0.1:9100, or a port of this machine")
    try:
        server, _ = start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
    except OSError as error:
        raise UsageError(f"--metrics={address} cannot be used ({error.strerror}): name another") from None
    try:
        yield f"http://{host or '127.0.0.1'}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
