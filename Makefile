PYTHON ?= python3
SOAK_SECONDS ?= 3600
export SOAK_SECONDS
FUZZ_SECONDS ?= 600

VENV := .venv
PY := $(VENV)/bin/python

# What starts processes is tested apart from the rest; half of each kind runs beside the other half.
STARTS := tests/docs tests/examples tests/integration
PARTS_BESIDE := tests/journal tests/parcels tests/spark
STARTS_BESIDE := tests/docs tests/examples tests/integration/test_command.py tests/integration/test_counter.py \
	tests/integration/test_dashboard.py tests/integration/test_operate.py tests/integration/test_units.py \
	tests/integration/test_journal.py tests/integration/test_report_page.py

.DEFAULT_GOAL := help
.PHONY: help demo test soak fuzz bench bench-all docs lint audit clean

help: ## list the targets
	@echo "make <target>, where target is one of"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1	\2/p' Makefile

demo: $(VENV)/.installed-demo ## watch a backbone, its clients and journals at work
	@echo "Running examples/demo.py"
	@$(PY) examples/demo.py

test: lint ## style, types, import order and every test but the soak; run it before each commit
	@mkdir -p build
	@echo "Running the tests of single parts, half of them beside the others"
	@$(call test_both,parts,$(PARTS_BESIDE),tests $(PARTS_BESIDE:%=--ignore=%) $(STARTS:%=--ignore=%))
	@echo "Running the tests that start processes, half of them beside the others"
	@$(call test_both,starts,$(STARTS_BESIDE),tests/integration $(STARTS_BESIDE:%=--ignore=%))
	@$(PY) -c "$$LAST_LINE"

soak: $(VENV)/.installed-test ## the tests that take long; SOAK_SECONDS=60 makes them short
	@echo "Running the soak tests, each for at most $(SOAK_SECONDS) s"
	@$(PY) -m pytest -m soak -rP

fuzz: $(VENV)/.installed-fuzz ## hostile bytes for every parser; FUZZ_SECONDS=60 makes it short
	@$(PY) -m fuzz.run --seconds $(FUZZ_SECONDS) $(FUZZ_OPTIONS)

bench: $(VENV)/.installed-bench ## race against NATS, Redis and ZeroMQ; five minutes
	@echo "Running benchmarks/bench_race.py"
	@$(PY) benchmarks/bench_race.py

bench-all: $(VENV)/.installed-test $(VENV)/.installed-bench ## run all benchmarks; hours
	@set -e; for bench in benchmarks/bench_*.py; do \
		[ -f "$$bench" ] || { echo "There is no benchmarks/bench_*.py"; exit 1; }; \
		echo "Running $$bench"; $(PY) "$$bench"; \
	done

docs: $(VENV)/.installed-docs ## build the documentation into build/docs
	@echo "Building the documentation"
	@$(PY) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "The documentation is in build/docs/index.html"

lint: $(VENV)/.installed-test ## style, types and import order only
	@echo "Checking style"
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@echo "Checking types"
	@$(PY) -m mypy
	@echo "Checking who imports whom"
	@$(VENV)/bin/lint-imports --no-logo

audit: $(VENV)/.installed-audit ## ask whether anything that is installed has known vulnerabilities
	@echo "Asking about everything in $(VENV)"
	@$(PY) tests/packaging/audit.py

clean: ## remove .venv and everything else that the targets made
	@echo "Removing .venv, build results and caches"
	@rm -rf $(VENV) build dist src/*.egg-info twisted/plugins/dropin.cache
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are written last, so what was interrupted is done again.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "This needs Python 3.11 or newer. Name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Making a Python environment in $(VENV)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); echo "That needs Python's venv module (Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@touch $@

$(VENV)/.installed-%: $(VENV)/.created setup.cfg pyproject.toml
	@echo "Installing the project and what 'make $*' needs into $(VENV); this takes a minute, once"
	@$(PY) -m pip install --quiet --disable-pip-version-check --prefer-binary --use-pep517 -e '.[$*]'
	@touch $@

# $(call test_both,NAME,TESTS,TESTS): what the first of two processes says is shown when the second is done.
test_both = $(PY) -m pytest --junit-xml=build/tests-$(1)-beside.xml $(2) >build/tests-$(1)-beside.log 2>&1 & beside=$$!; \
	$(PY) -m pytest --junit-xml=build/tests-$(1).xml $(3); others=$$?; \
	wait $$beside; beside=$$?; cat build/tests-$(1)-beside.log; exit $$((others || beside))

define LAST_LINE
from xml.etree import ElementTree
suites = [ElementTree.parse(f"build/tests-{part}.xml").getroot().find("testsuite") for part in ("parts", "parts-beside", "starts", "starts-beside")]
count = {name: sum(int(suite.get(name)) for suite in suites) for name in ("tests", "skipped")}
ran = count["tests"] - count["skipped"]
skipped = f" ({count['skipped']} skipped)" if count["skipped"] else ""
print(f"make test: style, types and import order are right, and {ran} tests pass{skipped}.")
endef
export LAST_LINE
