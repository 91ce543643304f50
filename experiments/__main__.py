"""Lists the papers' tables and figures, makes them, and draws the scoreboard: see `experiments.harness.command`."""

import sys

from experiments.harness.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
