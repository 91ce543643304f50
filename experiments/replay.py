"""`sgdlab replay`, in a checkout: `python -m experiments.replay`."""

from sgdlab.commands import launch, replay

if __name__ == "__main__":
    launch.command(replay)
