"""Weak synchronization (ICLR 2018 submission): its table and figures on a simulated cluster and on digits."""
