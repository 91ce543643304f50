"""Reproduces tables and figures of Chen et al. 2016, Revisiting Distributed Synchronous SGD: one command for each."""
