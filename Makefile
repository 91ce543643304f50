# make run    compare methods at their best on real images, to 95 % or as long as synchronous SGD; results in runs/digits
# make test   the fast tests (tier 1), docstring examples among them
# make test-all           both tiers: also combinations of methods, protocols and rules, every figure, every fault
# make test-compiled      a part of it again: how programs round that are compiled as users compile them
# make test-machines      what needs several processes for minutes; before a release, as is the next
# make test-integrations  what needs packages of others: Ray, Grafana's schema, PyTorch's trainers, Flower, hivemind, torchft
# make lint   ruff; codespell; import-linter, floors of sgdlab; pyrefly, types of sgdlab; shellcheck
# make bench  the measured figures, each with what it is compared to; appended to a stored table, and drawn by commit
# make notebooks  notebooks for Colab or Jupyter, from experiments/colab, in runs/notebooks
# make docs   the site, in runs/site: open runs/site/index.html
# make clean  remove everything that these commands made here

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Processes that tests start import modules that were compiled before.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2 --dist loadfile
# A run ends at the target, or when synchronous SGD has done its epochs; fewer evaluations than 800 for a few minutes' sake.
AT_TARGET := --seeds=6 --config.budget=1 --config.until_target=True --config.spacing=geometric --config.evaluations=200
COMPILED := tests/replay/test_modes.py tests/replay/test_float32.py tests/live/test_exact_replay.py tests/data/test_augment.py

.PHONY: run test test-all test-compiled test-machines test-integrations lint bench notebooks docs clean

run: $(VENV)/installed
	@echo 'Comparing methods; first their runs are planned, which takes some seconds.'
	@$(BIN)/python -m experiments.compare --config=configs/digits.py --tune=configs/digits.tuned.json $(AT_TARGET) \
		--workdir=runs/digits $(ARGS)

test: $(VENV)/tools
	$(PYTEST) $(ARGS)

test-all: $(VENV)/tools
	SGDLAB_TESTS=all $(PYTEST) -m 'not machines and not integrations' $(ARGS)
	$(MAKE) test-compiled

test-compiled: $(VENV)/tools
	SGDLAB_COMPILED=fully $(PYTEST) -m 'not machines' $(COMPILED)

test-machines: $(VENV)/tools
	$(PYTEST) -m machines $(ARGS)

test-integrations: $(VENV)/tools
	$(BIN)/python -m pip install --quiet --editable '.[grafana,ray]'
	$(PYTEST) -m integrations $(ARGS)

lint: $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/python scripts/first_words.py
	$(BIN)/lint-imports
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python
	$(BIN)/shellcheck scripts/*.sh scripts/release scripts/*/*.sh scripts/*/*.sbatch .ci/run

bench: $(VENV)/tools
	$(BIN)/python -m experiments.benchmarks --store $(ARGS)
	$(BIN)/python -m experiments.benchmarks history

notebooks: $(VENV)/tools
	mkdir -p runs/notebooks
	for source in experiments/colab/*.py; do \
	  $(BIN)/jupytext --quiet --to ipynb --output runs/notebooks/$$(basename $$source .py).ipynb $$source; done

docs: $(VENV)/tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "Written: runs/site/index.html; with search, $(BIN)/python -m http.server --bind 127.0.0.1 --directory runs/site"

# What runs need.
$(VENV)/installed: setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sgdlab needs Python 3.11 or later: make PYTHON=...")'
	@echo 'Installing sgdlab and what it needs in $(VENV): a few minutes, about 1.2 GB.'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --editable '.[experiments]'
	@touch $@

# What tests, linters, notebooks and the documentation need besides.
$(VENV)/tools: $(VENV)/installed
	@echo 'Installing tools of tests, lint and documentation in $(VENV): a minute, about 0.4 GB.'
	@$(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-newest record/build record/*.egg-info runs build *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
