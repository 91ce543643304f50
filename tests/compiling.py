"""What compiling costs in tests: counted, and kept short where it is not what is tested."""

import contextlib

import jax
from jax.experimental.compilation_cache import compilation_cache

COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def compilations():
    """A list that grows by one for each program that XLA compiles."""
    seen = []

    def listen(event, seconds, **facts):
        if event == COMPILED:
            seen.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@contextlib.contextmanager
def kept_in(path):
    """Programs are hardly optimised, and found again in a directory where they are the same."""
    settings = {"jax_compilation_cache_dir": str(path), "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in settings}

    def apply(values, *, optimized):
        for name, value in values.items():
            jax.config.update(name, value)
        jax.config.update("jax_disable_most_optimizations", not optimized)
        compilation_cache.reset_cache()  # it looks at these once

    apply(settings, optimized=False)
    try:
        yield
    finally:
        apply(before, optimized=True)
