"""Reads the records of runs: tables, plots, time-lines, the report. Its modules are imported at their first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=(
        "answer", "certificates", "facts", "floor", "metric",
        "metric_axis", "panels", "plots", "publish", "records", "report", "standing", "summary", "swept", "table",
        "target", "timeline", "trace", "writers",
    ),
)  # fmt: skip
