"""`sgdlab compare`, in a checkout: `python -m experiments.compare`."""

from sgdlab.commands import compare, launch

if __name__ == "__main__":
    launch.command(compare)
