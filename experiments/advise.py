"""`sgdlab advise`, in a checkout: `python -m experiments.advise`."""

from sgdlab.commands import advise, launch

if __name__ == "__main__":
    launch.command(advise)
