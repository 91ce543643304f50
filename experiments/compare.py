"""`sgdlab compare`, in a checkout: `python -m experiments.compare`."""

from sgdlab.commands import compare

if __name__ == "__main__":
    compare.COMMAND.run()
