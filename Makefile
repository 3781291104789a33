# Everything works from a fresh clone with an empty environment; stamp files make repeated runs fast.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
CONFIG ?= config/server.properties
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup setup-test run cluster test soak soak-faults soak-sim lint bench bench-quick clean distclean java jars iproute2

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(STAMPS)/run ## virtual environment with what a running broker needs

setup-test: $(STAMPS)/test java jars iproute2 ## ... and with what the tests need: test packages, Java, Apache Kafka's jars, iproute2

run: $(STAMPS)/run ## start one node on port 9092 (CONFIG=path for another properties file)
	@exec $(BIN)/barnabas server-start $(CONFIG)

cluster: $(STAMPS)/run ## start three nodes on ports 9092, 9102 and 9112; Ctrl-C stops them
	@exec $(BIN)/barnabas cluster

test: $(STAMPS)/test lint java jars iproute2 ## lint, then all tests (in WORKERS=2 processes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

soak: ## ten minutes of faults on real nodes, then soak-sim
	$(MAKE) soak-faults
	$(MAKE) soak-sim

soak-faults: $(STAMPS)/test java jars iproute2 ## ... the faults alone (FAULT_SECONDS=600, FAULT_SEED=n); ends with counts and problems
	cd tests && ../$(BIN)/python -m support.fault_run $(or $(FAULT_SECONDS),600) $(FAULT_SEED)

soak-sim: $(STAMPS)/test ## 100,000 simulated histories of the quorum (SEEDS=n), 20,000 of replication (REPLICATION_SEEDS=n); FIRST_SEED=n
	@first=$${FIRST_SEED:-$$($(BIN)/python -c 'import secrets; print(10**6 + secrets.randbelow(10**12))')}; \
	echo "first seed $$first; again: make soak-sim FIRST_SEED=$$first"; \
	(cd tests && ../$(BIN)/python -m support.raft_soak $(or $(SEEDS),100000) $$first) && \
	BARNABAS_REPLICATION_SEEDS=$(or $(REPLICATION_SEEDS),20000) BARNABAS_REPLICATION_FIRST_SEED=$$first \
	  $(BIN)/python -m pytest -s tests/sim/test_sim_replication.py

lint: $(STAMPS)/test ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMPS)/test java jars ## side by side with Apache Kafka: table, bench/results/*.json, latest.svg
	$(BIN)/python -m bench

bench-quick: $(STAMPS)/test java jars ## ... the most important cases, under 5 minutes
	$(BIN)/python -m bench --quick

clean: ## remove build products and caches (keeps .venv and the fetched jars)
	rm -rf build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## ... and the virtual environment and the fetched jars
	rm -rf $(VENV) .cache

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Barnabas needs Python 3.11 or later as '$(PYTHON)'; found: $$($(PYTHON) --version 2>&1)." \
	         "Name another with PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing: install Debian's python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/run: $(STAMPS)/venv pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@$(BIN)/python -m compileall -q broker cli config controller protocol storage  # the first start is as fast as the next
	@touch $@

$(STAMPS)/test: $(STAMPS)/venv pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test,dev]'
	@touch $(STAMPS)/run $@

# An installed Java of 17 or later wins; otherwise Debian's headless JRE, where we may install it.
java: $(STAMPS)/test
	@cd tests && ../$(BIN)/python -m support.java >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ]; then as_root=; \
	  elif sudo -n true 2>/dev/null; then as_root="sudo -n"; \
	  else as_root=no; fi; \
	  if [ "$$as_root" != no ] && command -v apt-get >/dev/null; then \
	    echo "installing Debian's headless JRE (the tests run Apache Kafka's own tools) ..."; \
	    $$as_root apt-get update -q >/dev/null; \
	    DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -q -y --no-install-recommends \
	      default-jre-headless >/dev/null || \
	    DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -q -y --no-install-recommends \
	      openjdk-17-jre-headless >/dev/null; \
	  fi; \
	  ../$(BIN)/python -m support.java >/dev/null; }

jars: $(STAMPS)/test java
	@cd tests && ../$(BIN)/python -m support.jars

# Tests cut nodes off from each other in network namespaces. Those need root, so to anyone else iproute2 is of no use.
iproute2: java  # one installation at a time
	@PATH="$$PATH:/usr/sbin:/sbin"; \
	if [ "$$(id -u)" = 0 ] && ! { command -v ip && command -v tc; } >/dev/null; then \
	  if command -v apt-get >/dev/null; then \
	    echo "installing iproute2 (the tests break networks of their own) ..."; \
	    { apt-get update -q && DEBIAN_FRONTEND=noninteractive \
	      apt-get install -q -y --no-install-recommends iproute2; } >/dev/null 2>&1; \
	  fi; \
	  { command -v ip && command -v tc; } >/dev/null || \
	    echo "iproute2 is missing: install it, or the tests leave out the faults of networks"; \
	fi
