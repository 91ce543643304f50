"""What a person can get wrong; command lines answer it in one line."""


class UsageError(ValueError):
    """A value that a person gave is impossible; the message names it and says what would be right."""
