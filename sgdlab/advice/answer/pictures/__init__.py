"""The pictures of `advise`, one a module: each function returns a figure, or None where there is nothing to show.

`all_of` draws those of all results, in the order of the page; `CAPTIONS` describes them. The modules, and Matplotlib,
are imported at their first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "album": ["all_of"],
        "backups": ["numbers_waited_for"],
        "captions": ["CAPTIONS"],
        "cascade": ["waterfall"],
        "episodes": ["histories"],
        "forecasts": ["predictions"],
        "heat": ["heat_map"],
        "speed_ups": ["protocols"],
        "medians": ["step_medians"],
        "scoring": ["scores"],
        "waiting": ["idle"],
        "window": ["schedule_window", "typical_steps"],
    },
)
