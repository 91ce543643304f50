"""Tables of runs as pandas has them, for scripts; no command needs pandas."""

from types import ModuleType

from sgdlab.errors import UsageError


def library(asked: str) -> ModuleType:
    """Return pandas for what is `asked`, a table; called before runs are done, so that none is done in vain.

    Raises:
      UsageError: where pandas is not installed; it says how to install it.
    """
    try:
        import pandas as pd  # noqa: PLC0415 (an optional requirement)
    except ImportError as error:
        raise UsageError(
            f"{asked} returns a table of pandas, which is not installed: pip install 'sgdlab[pandas]'"
        ) from error
    return pd
