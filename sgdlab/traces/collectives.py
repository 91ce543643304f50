"""Which operations of a profile are communication, by their names."""

import re

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


def collective(name: str) -> str | None:
    """The collective that an operation of a profile belongs to; None if it is no communication.

    Args:
      name: of a kernel, of an operation of XLA, or of an annotation.

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
