"""From a configuration to a run: methods, plans, training, comparisons. Its modules are imported at their first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=(
        "certified", "compare", "config_file", "configuration", "datasets", "defaults",
        "digests", "executor", "live", "live_evaluations", "live_run", "local_steps", "memory", "methods", "not_used",
        "own_methods", "own_parts", "parts", "plan", "pool", "provenance", "rates", "recorded", "records", "run_times",
        "seeds", "session", "shard", "simulated", "store", "sweep", "swept", "tasks", "train", "work", "workdir",
    ),
    submod_attrs={
        "own_methods": ["register_method"], "session": ["Session", "within"], "shard": ["Shard"],
        "store": ["Store"],
        "sweep": ["Sweep", "prepare"], "work": ["goes_by", "trains"],
    },
)  # fmt: skip
