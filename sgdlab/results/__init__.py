"""Reads the records of runs: tables, plots, time-lines, the report. Its modules are imported at their first use."""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    modules=(
        "answer", "certificates", "facts", "floor", "labels", "metric",
        "metric_axis", "overview", "panels", "plots", "publish", "records", "report", "summary", "swept", "table",
        "target", "timeline", "trace", "writers",
    ),
)  # fmt: skip
