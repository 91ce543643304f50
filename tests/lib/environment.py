"""Sets the environment of all tests, before JAX is imported: devices, and how and where programs are compiled.

Most of the time is compiling, so that programs are hardly optimised, except where SGDLAB_COMPILED=fully asks for what
users have. Of XLA's two ways to write machine code for a CPU the newer one, the only one since JAX 0.11, takes two to
three times as long; the older one is chosen where it is there. Processes that tests start compile in the same way.
"""

import importlib.metadata
import os
import pathlib
import signal

FULLY = os.environ.get("SGDLAB_COMPILED") == "fully"
_JAXLIB = importlib.metadata.version("jaxlib")
_OLDER = tuple(map(int, _JAXLIB.split(".")[:2])) < (0, 11)

_flags = ["--xla_force_host_platform_device_count=4"]
if not FULLY:
    _flags += ["--xla_cpu_parallel_codegen_split_count=1", *["--xla_cpu_use_fusion_emitters=false"] * _OLDER]
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *_flags])
os.environ.setdefault("JAX_PLATFORMS", "cpu")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it, with all that it starts
os.environ["GRPC_VERBOSITY"] = "ERROR"  # as `sgdlab.live` sets it; who imports gRPC before that comes too late

# Small programs are compiled again in every module and command: those of one pytest process are shared by files, and
# with the next run. Another process has a directory of its own, since JAX does not write these files at once.
_programs = pathlib.Path(__file__).parents[2] / ".pytest_cache" / f"xla-{_JAXLIB}{'-fully' * FULLY}"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_programs / os.environ.get("PYTEST_XDIST_WORKER", "main"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
