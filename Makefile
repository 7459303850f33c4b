PYTHON ?= python3
SOAK_SECONDS ?= 3600
export SOAK_SECONDS
FUZZ_SECONDS ?= 600

# What the installation of a target has to download.
SIZE_demo := 600 MB to download, most of it Spark
SIZE_test := 650 MB to download, most of it Spark
SIZE_docs := 600 MB to download, most of it Spark
SIZE_test-all := 700 MB to download, most of it Spark

# python3 has .venv. An interpreter named by PYTHON has an environment of its own, as .venv-3.14, or .venv-3.14t for a
# free-threaded one.
VENV_SUFFIX := $(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c \
	'import sys; print("%d.%d" % sys.version_info[:2] + sys.abiflags)' 2>/dev/null))
VENV := .venv$(VENV_SUFFIX)
PY := $(VENV)/bin/python
# The compiled nodes have an environment of their own, so that they never hide an edited source.
COMPILED := .venv-compiled$(VENV_SUFFIX)
# Interpreters that make wheels builds for.
PYTHONS ?= $(PYTHON)
SOURCES = $(shell find src compiling -name '*.py') setup.py setup.cfg pyproject.toml

# On a terminal, the demo goes on until Ctrl-C unless KEEP is 0; elsewhere, only if KEEP is 1.
KEPT = $(if $(KEEP),$(if $(filter 0,$(KEEP)),--no-keep,--keep))

# Benchmarks that make bench and make bench-compiled run, by the ends of their names.
BENCHES ?= race loss
run_benches = set -e; for bench in $(BENCHES:%=benchmarks/bench_%.py); do echo "Running $$bench"; $(1) "$$bench"; done
# Compiled nodes find what tests and benchmarks require in the other environment.
share_requirements = site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	$(PY) -c "$$site" > "$$($(COMPILED)/bin/python -c "$$site")/test_requirements.pth"

.DEFAULT_GOAL := help
.PHONY: help demo demo-full test test-core test-all test-rest test-compiled compiled wheel wheels soak fuzz bench bench-compiled bench-docs bench-all picture docs docs-versions release lint audit clean

help: ## list the targets
	@echo "make <target>, where target is one of"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1	\2/p' Makefile

demo: $(VENV)/.installed-demo ## run a backbone, clients, journals and Spark on sample data; 90 seconds; KEEP=1 keeps its dashboard
	@echo "Running examples/demo.py; make demo-full uses the data of the whole year"
	@$(PY) examples/demo.py $(KEPT)

demo-full: $(VENV)/.installed-demo ## the same with all flights of 2013; some minutes
	@echo "Running examples/demo.py --year"
	@$(PY) examples/demo.py --year $(KEPT)

test: $(VENV)/.installed-test ## check style, types and imports, and run the tests; five minutes; before each commit
	@echo "Checking style, types and imports, and running the tests on all cores"
	@PYTHONPATH=tests $(PY) -m suite.run

test-core: $(VENV)/.installed-test-core ## run tests of nodes and services without Spark, as with a new Python; three minutes
	@echo "Running the tests that need no Spark, on all cores"
	@PYTHONPATH=tests $(PY) -m suite.run --core

test-all: $(VENV)/.installed-test-all ## run all tests except the soak: Spark, browsers, documented commands, more examples
	@echo "Checking style, types and imports, and running all tests on all cores"
	@PYTHONPATH=tests $(PY) -m suite.run --all
	@$(MAKE) --no-print-directory test-compiled

test-rest: $(VENV)/.installed-test-all ## run what test-all has in addition to test
	@echo "Running the tests that make test leaves out, on all cores"
	@PYTHONPATH=tests $(PY) -m suite.run --rest

compiled: $(COMPILED)/.installed ## compile the nodes with mypyc into .venv-compiled; needs a C compiler and some minutes

test-compiled: $(COMPILED)/.installed $(VENV)/.installed-test-all ## run the tests of what is compiled on compiled nodes
	@echo "Running the tests of the compiled modules"
	@$(share_requirements)
	@PYTHONPATH=tests $(COMPILED)/bin/python -m suite.run --compiled

wheel: $(COMPILED)/.required ## build a compiled wheel into dist/ and test it in a fresh environment
	@echo "Building a compiled wheel into dist"
	@FYREHOSE_COMPILE=1 $(COMPILED)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation \
		--no-deps --wheel-dir dist .
	@$(PYTHON) tests/packaging/try_wheel.py dist

wheels: ## the same for each interpreter in PYTHONS="python3.13 python3.14"
	@set -e; for python in $(PYTHONS); do $(MAKE) --no-print-directory PYTHON="$$python" wheel; done

soak: $(VENV)/.installed-test-all ## run the long tests; SOAK_SECONDS=60 shortens them
	@echo "Running the soak tests, each for at most $(SOAK_SECONDS) s"
	@PYTHONPATH=tests $(PY) -m suite.run --soak

fuzz: $(VENV)/.installed-fuzz ## fuzz every parser; FUZZ_SECONDS=60 shortens it
	@$(PY) -m fuzz.run --seconds $(FUZZ_SECONDS) $(FUZZ_OPTIONS)

bench: $(VENV)/.installed-bench ## compare with NATS, Redis and ZeroMQ; ten minutes; BENCHES="race parcels" chooses
	@$(call run_benches,$(PY))

bench-compiled: $(COMPILED)/.installed $(VENV)/.installed-bench ## the same with compiled nodes
	@$(share_requirements)
	@$(call run_benches,$(COMPILED)/bin/python)

bench-docs: $(VENV)/.created ## write the results of the benchmarks into the documentation
	@$(PY) docs/benchmark_figures.py build/bench

bench-all: $(VENV)/.installed-test-all $(VENV)/.installed-bench ## run all benchmarks; hours
	@set -e; for bench in benchmarks/bench_*.py; do \
		[ -f "$$bench" ] || { echo "There is no benchmarks/bench_*.py"; exit 1; }; \
		echo "Running $$bench"; $(PY) "$$bench"; \
	done

picture: $(VENV)/.installed-test ## take the picture of the dashboard in README; needs chromium
	@PYTHONPATH=tests $(PY) docs/dashboard_picture.py

docs: $(VENV)/.installed-docs ## build the documentation into build/docs
	@echo "Building the documentation"
	@$(PY) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "The documentation is in build/docs/index.html"

docs-versions: $(VENV)/.installed-docs ## build it for all tags side by side; DOCS_REFS="v1.0.0 main" chooses
	@$(PY) docs/versions.py build/docs-versions $(DOCS_REFS)

lint: $(VENV)/.installed-test ## check style, types and imports only
	@PYTHONPATH=tests $(PY) -m suite.run --checks

release: $(VENV)/.installed-release ## build, check, try and commit a release: make release VERSION=1.2.3
	@[ -n "$(VERSION)" ] || { echo "Say which version: make release VERSION=1.2.3"; exit 1; }
	@$(PY) releasing/release.py $(VERSION) $(RELEASE_OPTIONS)

audit: $(VENV)/.installed-audit ## check the installed packages for known vulnerabilities
	@echo "Checking the packages in $(VENV)"
	@$(PY) tests/packaging/audit.py

clean: ## remove all environments and build results
	@echo "Removing the environments, build results and caches"
	@rm -rf .venv .venv-* build dist src/*.egg-info twisted/plugins/dropin.cache
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are written last, so what was interrupted is done again.
$(VENV)/.created $(COMPILED)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is required. Choose one: make PYTHON=python3.13 $(MAKECMDGOALS)"; exit 1; }
	@echo "Creating a Python environment in $(@D)"
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D) || { \
		rm -rf $(@D); echo "Python's venv module is missing (Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@touch $@

$(VENV)/.installed-%: $(VENV)/.created setup.cfg pyproject.toml
	@echo "Installing the project and the requirements of 'make $*' into $(VENV), once: $(or $(SIZE_$*),a minute or less)"
	@started=$$(date +%s); \
	$(PY) -m pip install --quiet --disable-pip-version-check --prefer-binary --use-pep517 -e '.[$*]' && \
	echo "Installed in $$(($$(date +%s) - started)) s"
	@touch $@

# An editable install brings the requirements; compiling then replaces it.
$(COMPILED)/.required: $(COMPILED)/.created setup.cfg pyproject.toml
	@echo "Installing the project's requirements and mypy into $(COMPILED)"
	@$(COMPILED)/bin/python -m pip install --quiet --disable-pip-version-check --prefer-binary --use-pep517 -e '.[compile]'
	@touch $@

$(COMPILED)/.installed: $(COMPILED)/.required $(SOURCES)
	@echo "Compiling the project into $(COMPILED)"
	@started=$$(date +%s); \
	FYREHOSE_COMPILE=1 $(COMPILED)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation \
		--no-deps --force-reinstall . && \
	echo "Compiled in $$(($$(date +%s) - started)) s"
	@touch $@
