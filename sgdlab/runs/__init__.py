"""From a configuration to a run: methods, plans, training, comparisons. Its modules are imported at their first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=(
        "compare", "configuration", "datasets", "digests", "executor", "experiment", "ledger", "live",
        "live_as_trace", "live_run", "local_steps", "methods", "parts", "plan", "pool", "rates",
        "recorded", "records", "space", "store", "sweep", "tasks", "train", "tuned_report", "tuning", "work",
    ),
    submod_attrs={
        "experiment": ["resolve"], "methods": ["register_method"], "store": ["Store"],
        "sweep": ["Session", "Shard", "Sweep", "prepare", "within"], "work": ["goes_by", "trains"],
    },
)  # fmt: skip
