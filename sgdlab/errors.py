"""What a person can get wrong; command lines answer it in one line."""

import contextlib
from collections.abc import Iterator


class UsageError(ValueError):
    """A value that a person gave is impossible; the message names it and says what would be right."""


@contextlib.contextmanager
def said_of(flag: str) -> Iterator[None]:
    """Says the `ValueError`s of a block, which name arguments, as mistakes in flags.

    Args:
      flag: what the messages are put behind.

    Raises:
      UsageError: in the place of a `ValueError`.

    Example:
      >>> with said_of("--config."):
      ...     raise ValueError("epochs=0 must be above 0")
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: --config.epochs=0 must be above 0
    """
    try:
        yield
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{flag}{error}") from error
