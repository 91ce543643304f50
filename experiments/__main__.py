"""Lists the papers' tables and figures, makes them, and draws the scoreboard: see `experiments.harness.command`."""

import sys

try:
    from experiments.harness.command import main
except ModuleNotFoundError as missing:
    if missing.name in ("annotated_types", "jsonschema", "pandas"):
        sys.exit(f"python -m experiments needs {missing.name}: pip install '.[experiments]'")
    raise

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
