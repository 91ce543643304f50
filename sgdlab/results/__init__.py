"""Reads the records of runs: tables, plots, time-lines, the report. Its modules are imported at their first use."""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    modules=(
        "answer", "certificates", "facts", "floor", "metric",
        "metric_axis", "panels", "plots", "publish", "records", "report", "standing", "summary", "swept", "table",
        "target", "timeline", "trace", "writers",
    ),
)  # fmt: skip
