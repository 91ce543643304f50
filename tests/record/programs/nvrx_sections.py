"""NVRx's own sections, and a report every 20 steps; its GPU parts are stubs. python nvrx_sections.py DIRECTORY."""

import sys
import time
import types

import sgdlab_record
import torch
from nvidia_resiliency_ext import straggler
from sgdlab_record import nvrx

torch.cuda.synchronize = lambda: None
detector = straggler.Detector
detector.custom_sections, detector.profiling_interval, detector.initialized = {}, 2, True
detector.cupti_manager = types.SimpleNamespace(get_results=dict, reset_results=lambda: None)
detector.reporter = types.SimpleNamespace(generate_report=lambda sections, kernels: sections)
recorder = sgdlab_record.Recorder(sys.argv[1], 0)
nvrx.install(detector, recorder)
reports = []
for step in range(60):
    with detector.detection_section("forward", profile_cuda=False):
        time.sleep(0.001 + 0.02 * (step == 42))
    with detector.detection_section("backward", profile_cuda=False):
        time.sleep(0.002)
    if step % 20 == 19:
        reports.append(detector.generate_report())
assert [report["forward"][straggler.Statistic.NUM] for report in reports] == [10, 10, 10]
recorder.close()
print("done", recorder.errors)
