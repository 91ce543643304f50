"""Theory of a schedule and a cluster: certificates of convergence, and times that no method can beat."""

from sgdlab.theory.certificate import Certificate, certificate
from sgdlab.theory.floors import Floor, heterogeneous, homogeneous, seconds_per_gradient, without_waiting
from sgdlab.theory.problem import Problem
from sgdlab.theory.tree import iterations, step_size, tree_distances

__all__ = [
    "Certificate",
    "Floor",
    "Problem",
    "certificate",
    "heterogeneous",
    "homogeneous",
    "iterations",
    "seconds_per_gradient",
    "step_size",
    "tree_distances",
    "without_waiting",
]
