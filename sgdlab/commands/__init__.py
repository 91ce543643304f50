"""The commands: `sgdlab advise`, `compare`, `train` and `timeline`."""
