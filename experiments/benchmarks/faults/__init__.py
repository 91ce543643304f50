"""Tests on real processes what a live run survives: faults of workers, messages and the server."""
