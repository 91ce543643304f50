"""`Clock`, the instants of a run: no two events share one."""

import math
from collections.abc import Callable


class Clock:
    """Seconds since the start of a run, by one clock alone: no two machines' clocks are compared.

    Args:
      time: seconds since some instant; it never falls.

    Example:
      >>> clock = Clock(lambda: 7.0)
      >>> clock.start()
      >>> clock.reading(), clock.event() > 0.0
      (0.0, True)
    """

    def __init__(self, time: Callable[[], float]):
        self._time, self._begin, self.last = time, time(), 0.0

    def start(self) -> None:
        """From now on the clock runs, from its last reading on."""
        self._begin = self._time() - self.last

    def now(self) -> float:
        """Seconds, for what is not recorded."""
        return max(self._time() - self._begin, self.last)

    def reading(self) -> float:
        """Seconds, no earlier than the last event or reading."""
        self.last = self.now()
        return self.last

    def event(self) -> float:
        """The instant of an event, later than all before: the order of a record's rows is that of its times."""
        self.last = max(self._time() - self._begin, math.nextafter(self.last, math.inf))
        return self.last

    def resume(self, last: float) -> None:
        """The clock stands at an instant that was read before; `start` lets it run on."""
        self.last = last
