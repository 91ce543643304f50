"""Measured figures, each beside the one it is compared to."""
