"""Steps of pipeline-parallel jobs, operation by operation: what waits for what, and the longest path through a step."""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    names={
        "graph": ["StepGraph", "build"],
        "job": ["PipelineJob"],
        "operations": ["COMPUTE", "NotAPipeline", "Operations", "OperationRows", "arranged"],
        "slowdown": ["Slowdown", "measure"],
    },
)
