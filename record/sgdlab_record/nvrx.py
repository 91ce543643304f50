"""NVRx: the raw times of its straggler detection's sections, taken before each report throws them away."""

from __future__ import annotations

from typing import Any

from sgdlab_record.recorder import Recorder


def drain(detector: Any, recorder: Recorder) -> None:
    """Write the times of each section since the last report as phases; nothing is gathered from other ranks.

    The k-th entry into a section is taken as step k: each must be entered once a step. Sections that are profiled only
    every n-th time have every n-th step. A time is milliseconds there.
    """
    every = detector.profiling_interval
    for section in list(detector.custom_sections.values()):
        times = list(section.cpu_elapsed_times)
        first = -(-section.total_entry_cnt // every) - len(times)
        for number, milliseconds in enumerate(times, start=first):
            recorder.write(every * number, {section.name: milliseconds / 1000})


def install(detector: Any, recorder: Recorder) -> None:
    """Drain the detector, the class `straggler.Detector`, whenever it makes a report."""
    report = detector.generate_report

    def generate_report() -> Any:
        try:
            drain(detector, recorder)
        except Exception as error:  # the job goes on
            recorder.failed(error)
        return report()

    detector.generate_report = generate_report
