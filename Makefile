# Everything runs in .venv, which these targets make: nothing but Python 3.11 (or newer) and make is needed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DEMO := .persona/demo

.PHONY: demo test check lock dev docs peers clean

# The main job on the sample world, recorded judge: no key, no database, no network. The world it shows drifts, so the job fails: that
# is the point of it, and the demo succeeds when the job failed for that reason and the report is there.
demo: .venv/runtime
	@mkdir -p $(DEMO)
	@echo "Evaluating the sample world (dagster job execute -j persona_regression, recorded judge) ..."
	@rm -f .persona/reports/report.html
	@$(BIN)/dagster job execute -m persona_pipeline.definitions -j persona_regression -c demo.yaml > $(DEMO)/dagster.log 2>&1; \
	  test -f .persona/reports/report.html || { cat $(DEMO)/dagster.log; exit 1; }
	@echo "Running the eval suites on recorded answers ..."
	@for suite in suites/*.eval.yaml; do \
	  $(BIN)/persona-pipeline suite run $$suite --allow-code --save > $(DEMO)/suite.log 2>&1 || { cat $(DEMO)/suite.log; exit 1; }; \
	  grep -vE '^(pass|borderline) ' $(DEMO)/suite.log; done
	@$(BIN)/persona-pipeline report --format html --output .persona/reports/report.html
	@echo
	@echo "Open the report:  $(CURDIR)/.persona/reports/report.html"
	@echo "Open Dagster:     make dev"

# Hundreds of processes are started, each of which would compile the package anew where bytecode is not written, and have
# threads of its own for arithmetic.
test: .venv/dev
	@command -v chromium >/dev/null || echo "no chromium: browser tests are skipped"
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadgroup

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/dagster definitions validate -m persona_pipeline.definitions

# The documentation as a site in .persona/site, with generated reference pages; nothing is fetched, every link is checked.
docs: .venv/dev
	$(BIN)/python -m docs.site.house
	$(BIN)/python -m tests.support.suite_schema
	$(BIN)/persona-pipeline schema schemas
	$(BIN)/python docs/site/build.py

# What persona-pipeline does beside other tools, written to docs/scoreboard.md. They are installed into .persona/peers, each in an
# environment of its own (about 5 GB); QUICK=1 only shows that it works.
peers: .venv/runtime
	PYTHONPATH=. OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.peers $(if $(QUICK),--quick --output .persona/scoreboard.md)

dev: .venv/runtime
	DAGSTER_HOME=$(CURDIR) $(BIN)/dagster dev

lock: .venv/dev
	$(BIN)/uv pip compile pyproject.toml --extra build --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --no-strip-extras -o requirements.lock -q
	$(BIN)/uv pip compile pyproject.toml --extra build --extra dev --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --no-strip-extras -c requirements.lock -o requirements-dev.lock -q

clean:
	rm -rf .venv .persona .dagster

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, not $$($(PYTHON) -V)"; exit 1; }
	@echo "Making .venv ..."
	@$(PYTHON) -m venv .venv

.venv/runtime: requirements.lock pyproject.toml | .venv/bin/python
	@echo "Installing what requirements.lock pins ..."
	@$(PIP) install --require-hashes --no-deps -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev: requirements-dev.lock .venv/runtime
	@echo "Installing what requirements-dev.lock pins ..."
	@$(PIP) install --require-hashes --no-deps -r requirements-dev.lock
	@touch $@
