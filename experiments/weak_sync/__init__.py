"""Reproduces the table and figures of weak synchronization (ICLR 2018 submission), simulated and on digits."""
