"""Prints what a recorder costs for each phase, and of a step of 100 ms with four phases: python record/benchmark.py."""

import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import sgdlab_record

STEPS, PHASES = 20_000, ("data", "forward", "backward", "update")


def main() -> None:
    """Print processor's and clock's microseconds a phase, the writing of it included, and the share of a step."""
    with tempfile.TemporaryDirectory() as directory, sgdlab_record.Recorder(directory) as recorder:
        clock, processor = time.perf_counter(), time.process_time()
        for _ in range(STEPS):
            for name in PHASES:
                with recorder.phase(name):
                    pass
            recorder.step()
            if len(recorder.pending) > 1000:
                recorder.flush()
        recorder.flush()
        used = [time.process_time() - processor, time.perf_counter() - clock]
        each = [1e6 * seconds / STEPS / len(PHASES) for seconds in used]
        share = 100 * each[0] * 1e-6 * len(PHASES) / 0.1
        print(
            f"{each[0]:.1f} us of a processor for each phase ({each[1]:.1f} us by the clock), {recorder.errors} errors"
        )
        print(f"{share:.3f} % of a step of 100 ms with {len(PHASES)} phases")


if __name__ == "__main__":
    main()
