# Every target works on a fresh machine: Python >= 3.11, make and a C compiler are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo report test test-slow mutants bench check browser docs recording dist clean

help:            ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 20

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "CANS needs Python 3.11 or newer; set PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)   ## a server and four unequal devices for a minute: learn, adapt, do without the server
	$(BIN)/cans demo

report: $(READY)  ## the paper's simulated figures and claims, quickly (all of them: cans reproduce)
	$(BIN)/cans reproduce --quick --out out/report

check: $(READY)  ## ruff, mypy and the layer check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

browser:         ## Chromium for the tests of the live page, from the system's packages
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
	  command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	  echo "no browser here: the tests of the live page will fail; apt-get install -y chromium" >&2

docs: $(READY)   ## the site, strictly, in out/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

recording: $(READY) browser  ## the demo's page as pictures and a short film, in docs/images
	$(BIN)/python docs/record.py

# Tests of time share two cores with each other: what fails is run again by itself, where a fault
# that is there fails again. The compiled engine gives the same numbers at any effort of the compiler,
# whose full one takes minutes longer.
test: export NUMBA_OPT = 1
test: check browser  ## everything but the tests marked slow; what CI runs
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 15 || \
	  $(BIN)/pytest --last-failed --last-failed-no-failures none

test-slow: $(READY)  ## the tests that take minutes
	$(BIN)/pytest -m slow

mutants: $(READY)  ## every small change of the learner's physics: does a fast test notice?
	$(BIN)/python tests/mutants.py

bench: $(READY)  ## benchmarks, ratios against peers; JSON in benchmarks/results/
	$(BIN)/python -m benchmarks

dist: $(READY)   ## sdist and wheel in dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist

clean:           ## remove the environment and what was generated
	rm -rf $(VENV) build dist out report .pytest_cache .mypy_cache .ruff_cache .hypothesis
