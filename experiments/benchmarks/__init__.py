"""Benchmarks: each measurement is printed with the one that it is compared to."""
