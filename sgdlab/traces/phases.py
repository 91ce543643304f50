"""The phases of a step, and the operations of a profile, that are communication by their names."""

import functools
import re

_COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "allreduce", "allgather", "reducescatter",
    "alltoall", "psum", "pmean", "collective", "collectives", "nccl", "gloo", "mpi", "ucc", "rccl", "c10d",
    "comm", "comms", "communication", "communicate", "communicating", "barrier",
)  # fmt: skip
# A worker sends to others, broadcasts and waits for them, but also for what is its own.
_EITHER = (
    "sync", "synchronize", "synchronise", "synchronization", "wait", "waiting",
    "broadcast", "send", "recv", "receive", "sendrecv",
)  # fmt: skip
_OWN = (
    "data", "dataloader", "loader", "input", "inputs", "batch", "io", "disk", "file", "cuda", "device", "gpu", "host",
    "stream", "cpu", "h2d", "d2h", "d2d", "item",
)  # fmt: skip
WAIT = " + wait"
"""Ending of the name of a stage that contains the wait for others beside own work, such as "backward + wait"."""

_TOTALS = ("step", "total", "iteration", "iter", "batch", "step_time", "total_time", "iteration_time")


def is_communication(name: str) -> bool:
    """Tell whether a phase of that name is time inside communication, in which a worker may wait for others.

    Collectives and barriers are; sends, broadcasts and waits are unless the name tells of data or the own device. So is
    a stage that contains a wait (`WAIT`), until `sgdlab.traces.stages` tells the two apart.

    Example:
      >>> names = "all-reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "grads-sync", "comm_time", "barrier", "wait"
      >>> all(is_communication(name) for name in names)
      True
      >>> is_communication("data + wait")
      True
      >>> names = "forward", "backward-compute", "async_copy", "cuda_synchronize", "wait for data", "send_to_device"
      >>> any(is_communication(name) for name in names)
      False
    """
    if name.endswith(WAIT):
        return True
    parts = words(name)
    pairs = {"_".join(parts[i : i + n]) for n in (1, 2, 3) for i in range(len(parts))}
    if pairs & set(_COLLECTIVES) or any(part.startswith("nccl") for part in parts):
        return True
    return bool(pairs & set(_EITHER)) and not pairs & set(_OWN)


def is_total(name: str) -> bool:
    """Tell whether a phase of that name is the whole step, of which others are parts.

    Example:
      >>> is_total("step"), is_total("optimizer_step")
      (True, False)
    """
    return "_".join(words(name)) in _TOTALS


def words(name: str) -> list[str]:
    """Return the words of a name, in lower case.

    Example:
      >>> words("stepTime (ms)")
      ['step', 'time', 'ms']
    """
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[\W_]+", apart.lower()) if word]


_LIBRARY = re.compile(r"nccl|rccl|oneccl|\b[gh]loo:|\bhcom|\bmpi:|\bucc:|\bxccl:|\bgloo\b", re.IGNORECASE)
_OPERATION = re.compile(
    r"all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?all|collective[-_ ]?permute|send[-_ ]?recv"
    r"|cross_device_reduce|ragged[-_]all|(?<!optimization-)\bbarrier\b",
    re.IGNORECASE,
)
_KINDS = (
    ("allreduce", "all_reduce"),
    ("crossdevicereduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("collectivepermute", "send_recv"),
    ("sendrecv", "send_recv"),
    ("barrier", "barrier"),
    ("broadcast", "broadcast"),
    ("send", "send_recv"),
    ("recv", "send_recv"),
    ("reduce", "reduce"),
    ("scatter", "scatter"),
    ("gather", "gather"),
)


@functools.lru_cache(maxsize=100_000)
def collective(name: str) -> str | None:
    """Return the collective of a kernel, an operation of XLA or an annotation; None if it is no communication.

    Example:
      >>> collective("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
      'all_reduce'
      >>> collective("all-gather-start.3"), collective("gloo:broadcast"), collective("nccl:coalesced")
      ('all_gather', 'broadcast', 'communication')
      >>> collective("void at::native::reduce_kernel<512, 1>") is None
      True
    """
    if not (_OPERATION.search(name) or _LIBRARY.search(name)):
        return None
    # What a kernel is called tells more than the types of its arguments.
    for text in (name.partition("(")[0], name):
        letters = re.sub(r"[^a-z]", "", text.lower())
        if found := next((kind for part, kind in _KINDS if part in letters), None):
            return found
    return "communication"
