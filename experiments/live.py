"""`sgdlab live`, in a checkout: `python -m experiments.live`."""

from sgdlab.commands import launch, live

if __name__ == "__main__":
    launch.command(live)
