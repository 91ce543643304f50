"""Every protocol measured on the evaluation steps, with parameters from the tuning steps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "comparison": [
            "BY_RATE",
            "Comparison",
            "ComparisonSettings",
            "DEEP_MARKOV",
            "Report",
            "SYNCHRONOUS",
            "compare",
            "run",
        ],
        "protocol": ["CEILING", "DEPLOYABLE", "DRAINED", "HINDSIGHT", "Protocol", "REFITTED", "STALE"],
        "sweeps": ["FINISHING", "INTERRUPTED", "BackupSweep"],
    },
)
