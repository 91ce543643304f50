"""`sgdlab data`, in a checkout: `python -m experiments.data`."""

from sgdlab.commands import data, launch

if __name__ == "__main__":
    launch.command(data)
