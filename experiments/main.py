"""`sgdlab train`, in a checkout: `python -m experiments.main`."""

from sgdlab.commands import launch, train

if __name__ == "__main__":
    launch.command(train)
