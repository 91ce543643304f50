"""Reproduces Jin et al. 2016 (gossiping SGD): a check of its bounds by simulation, and its comparison of methods."""
