"""`sgdlab train`, in a checkout: `python -m experiments.main`."""

from sgdlab.commands import train

if __name__ == "__main__":
    train.COMMAND.run()
