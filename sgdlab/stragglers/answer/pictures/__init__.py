"""The pictures of `advise`, where each function returns a figure, or None where there is nothing to show.

`all_of` draws those of all results, in the order of the page; `CAPTIONS` describes them. The modules, and Matplotlib,
are imported at their first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "album": ["CAPTIONS", "all_of"],
        "cascade": ["scores", "waterfall"],
        "episodes": ["histories", "idle", "step_medians"],
        "heat": ["heat_map"],
        "pipelines": ["stages"],
        "speed_ups": ["numbers_waited_for", "predictions", "protocols"],
        "window": ["schedule_window", "typical_steps"],
    },
)
