"""`sgdlab timeline`, in a checkout: `python -m experiments.timeline`."""

from sgdlab.commands import launch, timeline

if __name__ == "__main__":
    launch.command(timeline)
