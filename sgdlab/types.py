"""Types that annotations share."""

from typing import Any

Tree = Any
"""A pytree of arrays."""
