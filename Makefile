# `make demo` and `make test` set up everything that they need. `make help` lists all targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Three processes, even on two cores, because tests spend a third of their time waiting for servers and processes. All
# tests of a file run in one process, because Spark and the test servers start once per process. If a process dies, the
# run ends. By default, pytest would start another process and then wait forever.
PYTEST_ARGS ?= -n 3 --dist loadfile --max-worker-restart 0

# Tests start hundreds of interpreters. Without byte code, each would compile lakeplan again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup java demo test test-extended lint check quick format docs outputs site house image-steps bench series chaos fuzz mutants warm clean
help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: $(STAMP)  ## create .venv from pyproject.toml and constraints.txt
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3,11) <= sys.version_info[:2] <= (3,14) else "lakeplan needs Python 3.11 to 3.14, this is " + sys.version.split()[0] + ": set another one with PYTHON=python3.12")'
	@$(PYTHON) -P -m venv $(VENV) || { echo "venv is missing: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -P -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip setuptools wheel
	$(BIN)/python -P -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $(STAMP)

java:
	@{ [ -n "$$JAVA_HOME" ] && "$$JAVA_HOME/bin/java" -version || java -version; } >/dev/null 2>&1 \
	  || { echo "Java 17 or later is missing: on Debian or Ubuntu, apt-get install openjdk-17-jre-headless; elsewhere any JDK 17+, with JAVA_HOME set." >&2; exit 1; }

demo: setup java  ## plan and apply on the embedded sandbox, end to end
	@$(BIN)/lakeplan demo --spark

# `make test MARKS=` runs the tests of both targets, in less time than one after the other.
MARKS ?= not extended
test: setup java  ## test every behaviour once
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "$(MARKS)"

test-extended: setup java  ## run the same tests on every other store, runner and host, all random examples, and long campaigns
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m extended

lint: setup  ## check format, lint, types, and imports between rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

QUICK := tests/values tests/retention tests/review tests/tree tests/formats tests/branches
quick: lint  ## lint, and the tests of pure rules without random ones: under a minute
	$(BIN)/python -m pytest -q $(PYTEST_ARGS) -m "not (spark or golden or hypothesis or slow)" $(QUICK)

check: MARKS :=
check: lint test  ## lint, and run all tests (warnings are errors)

# Such as BENCH_ARGS="--objects 10M --commits 300 --rewrite 1% --no-baseline --repeat 1"
BENCH_ARGS ?= --objects 2M
bench: setup java  ## time simulations of a generated repository: with and without a cache, and with plain PySpark
	$(BIN)/python bench/simulate.py $(BENCH_ARGS)

SERIES_ARGS ?= --objects 500K
series: setup java  ## measure how time and memory grow with objects, churn and commits; write tables and graphs
	@$(BIN)/python -P -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python bench/series.py $(SERIES_ARGS)

CHAOS_ARGS ?= --steps 10000
chaos: setup  ## run random histories, edits and interruptions, and check the results independently: CHAOS_ARGS="--seed N --steps N"
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

FUZZ_ARGS ?= --count 1000000
fuzz: setup  ## read damaged ranges that have valid checksums with every decoder: FUZZ_ARGS="--seed N --count N --start N"
	$(BIN)/python -m tests.formats.hostile_ranges $(FUZZ_ARGS)

MUTANTS_ARGS ?=
mutants: .venv-mutants/.installed  ## run mutation tests of the code that decides what is deleted (an hour): MUTANTS_ARGS=retention/patterns
	.venv-mutants/bin/python -P tools/mutants.py $(MUTANTS_ARGS)
.venv-mutants/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv-mutants
	@sed 's/^click==.*/click==8.4.2/' constraints.txt > .venv-mutants/constraints.txt  # mutmut requires a newer version than the pinned one
	.venv-mutants/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-mutants/constraints.txt --editable '.[test,mutants]'
	@touch $@

warm: setup java  ## make Spark sessions start in about half the time (run once; needs 30 s and 190 MB)
	$(BIN)/python -P -m lakeplan.simulation.warm

house: setup  ## check the sizes of modules and functions
	$(BIN)/python -P tools/house.py

image-steps: setup  ## run the steps of the Containerfile in a clean root file system; needs root and debootstrap
	LAKEPLAN_TEST_IMAGE=1 $(BIN)/python -m pytest -q tests/test_release.py

format: setup  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup  ## write the generated parts of docs/ and schemas/
	PYTHONPATH=. $(BIN)/python -P -m tools.reference .

outputs: setup java  ## record the outputs of all commands again; review the diff before you commit it
	LAKEPLAN_REGENERATE_OUTPUT=1 $(BIN)/python -m pytest -q $(PYTEST_ARGS) tests/output tests/cli/outputs tests/e2e/test_path.py

site: setup  ## build the documentation as a site with search, in build/site; broken links are errors
	@$(BIN)/python -P -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	PYTHONPATH=. $(BIN)/python -P -m tools.site build/site

clean:
	rm -rf $(VENV) .venv-mutants mutants .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
