"""From a recorded trace to what is slow, what it costs and what to do: all parts of `advise`.

`recording` reads and splits the trace, `diagnosis` finds what is slow, `comparison` measures all protocols, `what_if`
replaces single times, `network` measures what messages cost, `failures` finds who was missing, `findings` holds all
results, `answer` recommends, writes and draws, and `follow` does it for a trace that grows. The modules are imported at
their first use.
"""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    modules=(
        "answer",
        "comparison",
        "diagnosis",
        "failures",
        "findings",
        "follow",
        "network",
        "recording",
        "repairs",
        "what_if",
    ),
)
