"""`Work` and `LocalSteps`, what a worker computes, and `WorkSource`, of which a worker makes it in its own process."""

import importlib
import json
import pathlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from sgdlab import user_files
from sgdlab.live.own_work import OwnLoop
from sgdlab.replay.streaming import Stream
from sgdlab.rules.feedback import Channel
from sgdlab.types import Tree


class LocalSteps(NamedTuple):
    """The steps that a worker makes for one message.

    Attributes:
      optimizer: () -> an optax transform.
      steps: `(worker) -> H_i`, how many steps a worker makes.
      stride: H, the largest number: step k of ticket t has the batch t H + k.
      proximal: strength of the pull towards what the worker has read; None: none.
      keep_state: whether a worker keeps its optimizer's state from one message to its next; otherwise it begins anew
        with each.
      stream: how a worker that keeps its parameters too sends them, a fragment with each message; None: it does not.
      inner: warm-up and decay of the worker's learning rate, a `sgdlab.runs.rates.InnerRate`: `factors`, float64[S], of
        its steps, one after the other, and `place(version)`, that of the first step of a message that begins on this
        version. None: it is constant.
    """

    optimizer: Callable[[], Any]
    steps: Callable[[int], int]
    stride: int
    proximal: float | None = None
    keep_state: bool = False
    stream: Stream | None = None
    inner: Any = None

    @property
    def keeps(self) -> bool:
        """Return True if a worker keeps anything between two messages: nobody else can compute its gradient."""
        return self.keep_state or self.stream is not None


class Work(NamedTuple):
    """Holds what a worker needs to compute gradients.

    Attributes:
      params: parameters of the right shapes and dtypes; their values are those before the first update.
      grad_fn: `(params, batch) -> (grads, aux)`, with gradients like the parameters.
      batch_fn: `(ticket) -> batch`, traced; the ticket is an int32 scalar, and the batch depends on nothing else.
      micro_batches: into how many equal parts a batch is cut; between two of them a gradient can be interrupted.
      seconds: `(worker, k) -> seconds`, the least time that the k-th gradient (0, 1, ...) of a worker's process takes,
        so that one machine behaves like a slower or less even cluster. None: gradients take what they take.
      finish: `(grads) -> grads`, traced: what is done with the whole gradient, the mean of its micro-batches, such as
        clipping. None: nothing.
      own: `(worker) -> batch_fn`, where workers have examples of their own: a worker's, in the place of `batch_fn`.
        None: all workers draw from the same examples.
      local: the steps of its own that a worker makes for each message, of which `batch_fn` gives the batches by their
        number, and `finish` finishes each gradient. None: a message is a gradient.
      channel: how messages are compressed. None: they are not.
      seed: of random compressors.
    """

    params: Tree
    grad_fn: Callable[[Tree, Tree], tuple[Tree, Tree]]
    batch_fn: Callable[[Any], Tree]
    micro_batches: int = 1
    seconds: Callable[[int, int], float] | None = None
    finish: Callable[[Tree], Tree] | None = None
    own: Callable[[int], Callable[[Any], Tree]] | None = None
    local: LocalSteps | None = None
    channel: Channel | None = None
    seed: int = 0


class WorkSource(NamedTuple):
    """Names the source of a worker's `Work`: a function, and the values it is called with.

    Attributes:
      function: "package.module:function", which is called with `argument` and returns a `Work` or an `OwnLoop`.
      argument: anything that JSON can write, so that nothing is unpickled.
      modules: modules that are imported before, by name; one that no import finds is loaded from its file.
    """

    function: str
    argument: Any
    modules: Mapping[str, str] = MappingProxyType({})

    def check(self) -> None:
        """Check what can be checked without an import.

        Raises:
          ValueError: if `function` is not a name that another process can import, `argument` is not JSON, or a file of
            `modules` does not exist.

        Example:
          >>> WorkSource("jobs.live", {}).check()
          Traceback (most recent call last):
          ...
          ValueError: function='jobs.live' must be a module's name, a colon, and the name of a function in it, such as
          'package.module:function'
        """
        module, _, name = self.function.partition(":")
        if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            raise ValueError(
                f"function={self.function!r} must be a module's name, a colon, and the name of a function in it, such "
                "as 'package.module:function'"
            )
        if module == "__main__":
            raise ValueError(
                f"function={self.function!r} must be in a module that other processes can import: put it in a file of "
                "its own"
            )
        try:
            json.dumps(self.argument)
        except (TypeError, ValueError) as error:
            raise ValueError(f"argument must be of values that JSON can write: {error}") from error
        for called, file in self.modules.items():
            if not pathlib.Path(file).is_file():
                raise ValueError(f"modules[{called!r}]={str(file)!r} must be a file; there is none")

    def make(self) -> Work | OwnLoop:
        """Call the function, in this process.

        Raises:
          ValueError: if the function is not there, or returns something else than a `Work`, or an `OwnLoop`.

        Example:
          >>> WorkSource("math:sqrt", 4.0).make()
          Traceback (most recent call last):
          ...
          ValueError: function='math:sqrt' must return a sgdlab.live.work.Work; it has returned a float
        """
        for called, file in self.modules.items():
            user_files.import_or_execute(called, file)
        module, _, name = self.function.partition(":")
        function = getattr(importlib.import_module(module), name, None)
        if not callable(function):
            raise ValueError(f"function={self.function!r} must name a function; {module} has no {name}")
        work = function(self.argument)
        if not isinstance(work, Work | OwnLoop):
            raise ValueError(
                f"function={self.function!r} must return a sgdlab.live.work.Work; it has returned a "
                f"{type(work).__name__}"
            )
        return work
