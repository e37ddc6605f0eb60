# The newcomer's two commands are `make demo` and `make test`; both set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test fast lint format bench clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

fast: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) .bench-torch/.ready .bench-jax/.ready
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.plots

.bench-%/.ready: benchmarks/%.txt
	$(PYTHON) -m venv .bench-$*
	.bench-$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lsmcmc needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .bench-torch .bench-jax .mypy_cache .ruff_cache
