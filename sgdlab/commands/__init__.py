"""The commands `sgdlab advise`, `compare`, `train` and `timeline`, and `console`, the script that starts them."""
