"""`Work`, what a worker computes, `OwnWork`, the same of a loop of your own, and `WorkSource`, by which it is found."""

import ast
import functools
import hashlib
import importlib
import inspect
import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from sgdlab import user_files
from sgdlab.live.transport import ANEW
from sgdlab.replay.streaming import Stream
from sgdlab.rules.feedback import Channel
from sgdlab.types import Tree

Gradient = Callable[[Tree, int], tuple[Tree, float]]
"""(parameters, ticket) -> (gradients, loss), all in NumPy arrays."""


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

    def make(self) -> "Work | OwnLoop":
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


class OwnWork(NamedTuple):
    """Holds what a worker of a loop of your own computes, of which nothing is compiled or traced.

    Attributes:
      params: initial parameters, a pytree of arrays.
      gradient: `(params, ticket) -> (grads, loss)`. Parameters come as NumPy arrays that are valid until it returns;
        gradients are arrays like them. The ticket, 0, 1, ..., is the gradient's number in the run, the same whoever
        computes it: of it choose the batch.
      deterministic: whether the same ticket and parameters give the same gradient, to the bit, in another process.
        Then a server that was killed computes what it has lost again, and a run can be replayed; otherwise messages are
        written down.
    """

    params: Tree
    gradient: Gradient
    deterministic: bool = True


class OwnLoop:
    """A function of yours, which makes the `OwnWork` of each worker: it is called once for each.

    Args:
      function: `(worker, **given) -> (params, gradient)`, or an `OwnWork`.
      given: its keywords.
    """

    def __init__(self, function: Callable[..., Any], given: Mapping[str, Any]):
        self._works = functools.cache(lambda worker: checked(function(worker, **given)))

    def of_worker(self, worker: int) -> OwnWork:
        """Return the work of a worker."""
        return self._works(worker)

    def compute_of(self, worker: int) -> Callable[..., Any]:
        """Return what computes the gradients of a worker, as `Gradients.compute` does."""
        return OwnGradients(self.of_worker(worker)).compute


def loop(argument: Mapping[str, Any]) -> OwnLoop:
    """Return the loop of a `WorkSource`, in a worker's process.

    Args:
      argument: "function", a module that is imported and a name in it, and "given", its keywords.
    """
    module, _, name = argument["function"].partition(":")
    return OwnLoop(getattr(sys.modules[module], name), argument["given"])


def checked(found: Any) -> OwnWork:
    """Return what a user's function has returned, as an `OwnWork` of NumPy arrays.

    Raises:
      ValueError: where it is no pair of parameters and a function.

    Example:
      >>> work = checked(({"w": np.zeros(2, np.float32)}, lambda params, ticket: (params, 0.0)))
      >>> work.params, work.deterministic
      ({'w': array([0., 0.], dtype=float32)}, True)
      >>> checked(lambda params, ticket: (params, 0.0))
      Traceback (most recent call last):
      ...
      ValueError: work must return (params, gradient), or a sgdlab.live.OwnWork; it has returned a function
    """
    if not isinstance(found, tuple) or len(found) < 2 or not callable(found[1]):
        raise ValueError(
            "work must return (params, gradient), or a sgdlab.live.OwnWork; it has returned a "
            f"{'pair of other things' if isinstance(found, tuple) else type(found).__name__}"
        )
    work = OwnWork(*found)
    params = jax.tree.map(np.asarray, work.params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jax.dtypes.issubdtype(leaf.dtype, np.floating):
            raise ValueError(f"params{jax.tree_util.keystr(path)} is {leaf.dtype}; it must be an array of floats")
        if not np.isfinite(leaf).all():
            raise ValueError(
                f"params{jax.tree_util.keystr(path)} must be finite: some of it is not, before the first step"
            )
        if leaf.dtype == np.float64 and not jax.config.read("jax_enable_x64"):
            raise ValueError(
                f"params{jax.tree_util.keystr(path)} is float64; make it float32, or set JAX_ENABLE_X64=true"
            )
    return work._replace(params=params)


def place_of(work: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the name by which another process finds a function, and the files of modules that no import finds.

    A function of the script that runs is found in the script's file, which the other process executes as a module: what
    is below `if __name__ == "__main__":` is not.

    Raises:
      ValueError: where another process cannot find it: a lambda, one inside of another function, or of a notebook.

    Example:
      >>> place_of(lambda worker: None)
      Traceback (most recent call last):
      ...
      ValueError: work must be a function that another process can import: one at the top of a file, and not <lambda>
    """
    module, name = getattr(work, "__module__", None), getattr(work, "__qualname__", type(work).__name__)
    home = sys.modules.get(module or "")
    file = getattr(home, "__file__", None)
    if module is None or file is None or getattr(home, name, None) is not work:
        raise ValueError(
            "work must be a function that another process can import: one at the top of a file, and not "
            f"{name.rpartition('.')[2]}"
        )
    path = pathlib.Path(file).resolve()
    called = path.stem if module == "__main__" else module
    return f"{called}:{name}", {called: str(path)}


def code_of(work: Callable[..., Any]) -> str:
    """Return a digest of the file in which a function is, whatever its comments and its layout.

    What stands below `if __name__ == "__main__":` may be another, since workers do not execute it.
    """
    tree = ast.parse(pathlib.Path(inspect.getfile(work)).read_text(encoding="utf-8"))
    main = ast.dump(ast.parse('__name__ == "__main__"', mode="eval").body)
    tree.body = [part for part in tree.body if not (isinstance(part, ast.If) and ast.dump(part.test) == main)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


class OwnGradients:
    """The gradients of one worker of a loop of your own; it has what `sgdlab.live.gradients.Gradients` has.

    Args:
      work: of the worker.

    Attributes:
      params: arrays like the parameters.
      sent: arrays like a gradient.
      aux: arrays like what comes with it: its loss.
    """

    packer = None

    def __init__(self, work: OwnWork):
        self._work, self.params, self.sent = work, work.params, work.params
        self.aux = {"loss": np.zeros([], np.float32)}

    def compile(self) -> None:
        """Compute a gradient that nobody uses, so that the first one takes no longer than the others."""
        self.compute(0, self._work.params)

    def compute(
        self,
        ticket: int,
        params: Tree,
        stop: Callable[[], bool] = lambda: False,
        *,
        after: int = ANEW,
        version: int = 0,
    ) -> tuple[Tree, Tree] | None:
        """Compute a gradient; arguments are as of `Gradients.compute`, which says more.

        Raises:
          ValueError: where it is not like the parameters.
        """
        del after, version
        if stop():
            return None
        found = self._work.gradient(jax.tree.map(np.asarray, params), ticket)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ValueError(f"gradient must return (grads, loss); it has returned a {type(found).__name__}")
        return _like(self._work.params, found[0]), {"loss": np.float32(found[1])}


def _like(params: Tree, grads: Tree) -> Tree:
    """Return gradients as arrays with the dtypes of the parameters."""
    if jax.tree.structure(grads) != jax.tree.structure(params):
        raise ValueError(
            f"gradient must return gradients like the parameters, {jax.tree.structure(params)}; it has returned "
            f"{jax.tree.structure(grads)}"
        )

    def like(path: Any, param: np.ndarray, grad: Any) -> np.ndarray:
        array = np.asarray(grad, param.dtype)
        if array.shape != param.shape:
            raise ValueError(
                f"gradient{jax.tree_util.keystr(path)} has shape {array.shape}; its parameters have {param.shape}"
            )
        return array

    return jax.tree_util.tree_map_with_path(like, params, grads)
