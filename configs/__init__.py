"""Configurations of the commands; `sgdlab.configs` where the package is installed."""
