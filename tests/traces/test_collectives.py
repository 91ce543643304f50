"""Names of kernels and operations, as NCCL, XLA and PyTorch write them."""

import pytest

from sgdlab.traces.phases import collective

NAMES = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "all_reduce",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": "reduce_scatter",
    "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": "all_gather",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_recv",
    "ncclDevKernel_Broadcast_RING_LL": "broadcast",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>": "all_reduce",
    "void reduce_scatter_kernel(AllReduceParams<float>)": "reduce_scatter",
    "nccl:_allgather_base": "all_gather",
    "nccl:recv 0<-1": "send_recv",
    "gloo:all_reduce": "all_reduce",
    "all-reduce.17": "all_reduce",
    "all-gather-start.2": "all_gather",
    "collective-permute-done": "send_recv",
    "all-to-all.1": "all_to_all",
    "hcom_allReduce__123": "all_reduce",
}
NOT = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
    "void gemm_broadcast_scatter_gather",
    "broadcast_multiply_fusion",
    "torch::distributed::reducer::mul_out",
    "DistributedDataParallel.forward",
    "optimization-barrier.1",
    "Optimizer.step#SGD.step",
    "aten::scatter_",
    "reduce.4",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_collective_is_told_by_its_name(name):
    assert collective(name) == NAMES[name]


@pytest.mark.parametrize("name", NOT)
def test_other_work_is_no_collective(name):
    assert collective(name) is None
