"""From a configuration to a run, and a grid of runs: the parts are put together here."""
