# Every target does its own set-up and works first, alone and twice; it needs Python, pip and make.

PYTHON ?= python3
JOBS ?= 2
ARGS ?=

environment = @$(PYTHON) tools/environment.py
in_parallel = -n $(JOBS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-repeat check bench bench-quick quality clean

help: ## Show this list
	@echo 'make TARGET [PYTHON=python3] [JOBS=2] [ARGS=...]'
	@awk -F ': ## ' '/^[a-z-]+: ## / { printf "  %-12s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## See a training run survive `kill -9` of a worker and of its driver
	$(environment) .venv demo
	@.venv/bin/python examples/demo.py $(ARGS)

test: ## Run all tests; ARGS="tests/unit -k lease" for some
	$(environment) .venv test
	@$(PYTHON) tools/install_servers.py
	.venv/bin/python -m pytest $(in_parallel) $(ARGS)

test-long: ## Run all tests and the rest of the long campaigns, of which `test` runs a part
	$(environment) .venv test
	@$(PYTHON) tools/install_servers.py
	.venv/bin/python -m pytest $(in_parallel) --long $(ARGS)

test-repeat: ## Run all tests, and what failed once more, alone: what passes then is called FLAKY
	$(environment) .venv test
	@$(PYTHON) tools/install_servers.py
	.venv/bin/python tools/repeat_failures.py $(in_parallel) $(ARGS)

check: ## Check format, style, types and layers
	$(environment) .venv dev
	@failed=0; \
	for tool in 'ruff format --check .' 'ruff check .' mypy 'lint-imports --no-logo'; do \
		echo "$$tool"; .venv/bin/$$tool || failed=1; \
	done; exit $$failed

bench: ## Measure Holdfast beside the limits of this machine and its peers; ONLY=recovery for some
	$(environment) .venv-bench bench
	-$(environment) .venv-peers peers
	.venv-bench/bin/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench-quick: ## See in minutes which ratios have moved since bench/baseline.json was kept
	$(environment) .venv-bench bench
	.venv-bench/bin/python -m bench --quick --compare $(if $(ONLY),--only $(ONLY)) $(ARGS)

quality: ## Hold searches against Optuna, HyperOpt and BOHB's original, over 80 seeds
	$(environment) .venv test
	$(environment) .venv-quality quality
	.venv/bin/python -m bench.quality $(ARGS)

clean: ## Remove environments, caches and build results
	rm -rf .venv .venv-bench .venv-peers .venv-quality build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	rm -rf .hypothesis .coverage .coverage.*
	find . -name __pycache__ -prune -exec rm -rf {} +
