"""A computation in a process of its own, which has a lock and a core of its own, while this one goes on."""

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar, cast

T = TypeVar("T")

# Not `multiprocessing`, which imports the user's script a second time, and runs it where it has no guard.
_PROGRAM = """
import pickle, sys
answer, sys.stdout = sys.stdout.buffer, sys.stderr
sys.path[:] = pickle.load(sys.stdin.buffer)
function, given = pickle.load(sys.stdin.buffer)
pickle.dump(function(*given), answer)
"""


@contextlib.contextmanager
def beside(function: Callable[..., T], *given: Any, elsewhere: bool = True) -> Iterator[Callable[[], T]]:
    """Compute in a second process while the block runs; yield a function that waits for the result and returns it.

    Where no process can be started, or it fails, the result is computed here when it is asked for. Leaving the block
    before that ends the process.

    Args:
      function: of a module, whose result does not depend on this process.
      *given: its arguments.
      elsewhere: whether there is a second process; without one, the result is computed when it is asked for.

    Example:
      >>> import operator
      >>> with beside(operator.add, 1, 2) as result:
      ...     result()
      3
    """
    process = _started() if elsewhere else None
    if process is None:
        yield lambda: function(*given)
        return
    to, of = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)

    def result() -> T:
        try:
            return pickle.load(of)
        except (EOFError, pickle.UnpicklingError):
            return function(*given)

    with process:
        try:
            with contextlib.suppress(BrokenPipeError), to:
                pickle.dump(sys.path, to)
                pickle.dump((function, given), to, protocol=pickle.HIGHEST_PROTOCOL)
            yield result
        finally:
            process.kill()


def _started() -> subprocess.Popen[bytes] | None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        return subprocess.Popen([sys.executable, "-c", _PROGRAM], **pipes)
    except OSError:
        return None
