"""Steps of pipeline-parallel jobs, operation by operation: what waits for what, and the longest path through a step."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "graph": ["StepGraph", "build"],
        "job": ["PipelineJob"],
        "operations": ["COMPUTE", "NotAPipeline", "Operations", "OperationRows", "arranged"],
        "slowdown": ["Slowdown", "measure"],
    },
)
