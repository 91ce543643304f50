"""`python -m sgdlab`: the same as the console script `sgdlab`."""

import sys

from sgdlab.commands import console

if __name__ == "__main__":
    sys.exit(console.main())
