"""Every protocol measured on the evaluation steps, with parameters from the tuning steps."""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    names={
        "comparison": [
            "Comparison",
            "ComparisonSettings",
            "DEEP_MARKOV",
            "Report",
            "SYNCHRONOUS",
            "compare",
        ],
        "cutting": ["BY_RATE", "run"],
        "protocol": ["CEILING", "DEPLOYABLE", "DRAINED", "HINDSIGHT", "Protocol", "REFITTED", "STALE"],
        "sweeps": ["FINISHING", "INTERRUPTED", "BackupSweep"],
    },
)
