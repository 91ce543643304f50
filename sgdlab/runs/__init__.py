"""From a configuration to a run: methods, plans, training, comparisons. Its modules are imported at their first use."""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    modules=(
        "compare", "compared", "compared_report", "configuration", "datasets", "digests", "executor", "experiment",
        "joined", "ledger", "live", "live_as_trace", "live_run", "local_steps", "methods", "parts", "plan", "pool",
        "rates", "recorded", "records", "space", "store", "sweep", "tasks", "train", "tuned_report", "tuning", "varied",
        "work",
    ),
    names={
        "experiment": ["resolve"], "methods": ["register_method"], "store": ["Store"],
        "sweep": ["Session", "Shard", "Sweep", "prepare", "within"], "work": ["goes_by", "trains"],
    },
)  # fmt: skip
