"""From a recorded trace to the fastest protocol: measurements, recommendation, tables, plots and the page of `advise`.

`recording` reads and splits the trace, `comparison` measures all protocols, `verdict` chooses one, `findings` holds all
results, and `publish` writes them. The modules are imported at their first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=(
        "comparison", "culprits", "findings", "learned", "measured", "next_steps", "oracle", "page", "pictures",
        "publish", "recording", "sentences", "stragglers", "table", "tuning", "uncertainty", "verdict", "words",
    ),
)  # fmt: skip
