"""Executes a policy on real processes, and records what happened."""
