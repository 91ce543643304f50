"""Reproduces Teng and Wood 2018: the throughput of predictors and the paper's figures, one command for each."""
