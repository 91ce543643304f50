"""`OperationTimes`, the times of a job of pipelines between repairs, and the kinds of its repairs."""

import dataclasses

import numpy as np

from sgdlab.pipelines.job import PipelineJob

STAGE_OF_RANK, LINK, LINKS = "stage of a rank", "link", "links"
LENGTHS, LONG_STAGE, PAUSED = "sequence lengths", "long stage", "pauses"


@dataclasses.dataclass(frozen=True, eq=False)
class OperationTimes:
    """Holds the seconds of the operations of a job, between repairs.

    Attributes:
      job: with these seconds.
    """

    job: PipelineJob

    def seconds(self) -> np.ndarray:
        """Return float64[T], the longest path through each step."""
        return self.job.steps

    def having(self, seconds: np.ndarray) -> "OperationTimes":
        """Return the same job with other seconds, float64[O, T, N]."""
        return OperationTimes(dataclasses.replace(self.job, seconds=seconds))
