"""What the operator reads: recommendation, sentences, tables, pictures, the page, and the next commands."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "headline",
        "machine_readable",
        "next_steps",
        "pictures",
        "publish",
        "rules",
        "sentences",
        "table",
        "verdict",
    ],
)
