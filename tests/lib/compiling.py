"""Count what compiling costs in tests."""

import contextlib

import jax

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
