"""Launchers, and one folder for each paper: what a person runs."""
