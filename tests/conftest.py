"""Every test runs in float64 on four devices of this machine's processor; docstring examples run as users would."""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import atexit
import functools
import gc
import importlib
import shutil
import tempfile

# Small programs are compiled again in every module and command: those of one pytest process are shared by files.
# Another process has a directory of its own, since JAX does not write these files at once.
os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="sgdlab-tests-")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import compiling
import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

_PROGRAMS = os.environ["JAX_COMPILATION_CACHE_DIR"]
atexit.register(shutil.rmtree, _PROGRAMS, ignore_errors=True)

# Commands in processes of their own are compiled lightly: what they do is tested, and not how fast. This process has
# imported JAX already, and decides for each module (see `compiled_lightly`).
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"


def pytest_collection_finish():
    """What is there for all tests, modules and the tests themselves, is not looked through again after each file."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def no_programs_left():
    """Compiled programs go with their module: thousands in one process need more memory maps than Linux gives."""
    yield
    jax.clear_caches()
    gc.collect()


_LIGHTLY = (
    "advice",
    "commands",
    "data",
    "deep_markov",
    "docs",
    "experiments",
    "harness",
    "hosts",
    "jobs",
    "networks",
    "peers",
    "protocols",
    "replay",
    "rules",
    "tests",
)


# Of XLA's two ways to write machine code for a CPU the newer one, which users have, takes two to three times as long.
_QUICKLY = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
_QUICK_FOLDERS = (  # those in which hardly a module has live workers, whose gradients are replayed bit for bit
    "data",
    "deep_markov",
    "experiments",
    "harness",
    "jobs",
    "networks",
    "peers",
    "protocols",
    "replay",
    "rules",
    "tests",
)
_compiler = importlib.import_module("jax._src.compiler")  # private: XLA_FLAGS would be for all modules of a process
_options = _compiler.get_compile_options


@functools.cache
def _quick_options_are_known():
    """A version of XLA without them would refuse every program."""
    try:
        jax.jit(lambda: 0, compiler_options=_QUICKLY)()
    except jax.errors.JaxRuntimeError:
        return False
    return True


@functools.wraps(_options)
def _quick_options(*arguments, env_options_overrides=None, **more):
    return _options(*arguments, env_options_overrides=_QUICKLY | (env_options_overrides or {}), **more)


@pytest.fixture(autouse=True, scope="module")
def compiled_lightly(request):
    """Programs are hardly optimised where they are not what is tested: compiling them is most of the suite's time.

    The examples in docstrings are compiled as users' are, and so are modules that are marked, such as those that
    compare replay's modes bit for bit.
    """
    marked = request.node.get_closest_marker("fully_compiled")
    lightly = request.path.parent.name in _LIGHTLY and not marked
    jax.config.update("jax_disable_most_optimizations", lightly)
    # Files of programs are found by what is computed, and not by how it was compiled: each way has its own.
    jax.config.update("jax_compilation_cache_dir", f"{_PROGRAMS}/{'lightly' if lightly else 'fully'}")
    compilation_cache.reset_cache()
    with pytest.MonkeyPatch.context() as patch:
        if lightly and request.path.parent.name in _QUICK_FOLDERS and _quick_options_are_known():
            patch.setattr(_compiler, "get_compile_options", _quick_options)
            flags = [f"--{name}={str(value).lower()}" for name, value in _QUICKLY.items()]
            patch.setenv("XLA_FLAGS", " ".join([os.environ["XLA_FLAGS"], *flags]))  # of commands in their own processes
        yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(autouse=True)
def x64():
    """Double precision: what is compared is the algorithm, not its rounding."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(name="compilations")
def compilations_since():
    """What the backend has compiled since."""
    with compiling.compilations() as seen:
        yield seen
