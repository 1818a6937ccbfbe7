# Set-up, tests, checks, demo and benchmarks. `make help` lists the targets.
#
#   make setup PYTHON=/usr/bin/python3.12    set up with this interpreter
#   make test ARGS='-k scan -x'              pass arguments on (all but setup, check, format and clean)
#   make test PROCESSES=0                    run the tests in one process, as plain pytest does

PYTHON ?=
ARGS ?=
PROCESSES ?= 2

venv := .venv
python := $(venv)/bin/python
# A file's tests stay together, and all of Spark's do: they share what is dear to make
# (tests/conftest.py).
# The tests in which the two kernels could differ.
kernel_tests = tests/unit/format tests/golden tests/property
in_parallel = --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup ready demo test test-kernels test-spark42 test-versions soak crash power-cuts check format bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv with the package, its tools and the compiled kernel
	@found=$$(PYTHON='$(PYTHON)' sh tools/find-python) && "$$found" -B tools/setup.py

# What the other targets stand on: the same as setup, silent when there is nothing to do.
ready:
	@found=$$(PYTHON='$(PYTHON)' sh tools/find-python) && "$$found" -B tools/setup.py --quiet

demo: ready ## Run the main job on the store that comes with the project, under ./data
	@$(python) tools/demo.py $(ARGS)

test: ready ## Run all tests
	@$(python) -m pytest $(in_parallel) $(ARGS)

# ROCKETLAKE_KERNEL=native makes a missing compiled kernel an error, not a skip.
test-kernels: ready ## Run the kernel, golden and property tests on each kernel; both are required
	@for kernel in native pure; do \
		echo "== $$kernel kernel"; \
		ROCKETLAKE_KERNEL=$$kernel $(python) -m pytest $(in_parallel) $(kernel_tests) \
			--ignore tests/golden/test_golden_kernels.py $(ARGS) || exit $$?; \
	done

# Beside the one of .venv, in a folder of its own.
test-spark42: ready ## Run the Spark tests with PySpark 4.2 instead of the newest
	@[ -e $(venv)/spark42/pyspark ] || $(python) -m pip install --quiet \
		--disable-pip-version-check --target $(venv)/spark42 'pyspark>=4.2,<4.3'
	@PYTHONPATH=$(CURDIR)/$(venv)/spark42 $(python) -m pytest $(in_parallel) tests/spark $(ARGS)

test-versions: ready ## Run all tests on each Python from 3.11 to 3.14 found here, and PySpark 4.2
	@$(python) tools/test_versions.py $(in_parallel) $(ARGS)

soak: ready ## Run the long tests: two minutes each, or ROCKETLAKE_SOAK_S seconds
	@ROCKETLAKE_SOAK_S=$${ROCKETLAKE_SOAK_S:-120} $(python) -m pytest tests/soak $(ARGS)

crash: ready ## Kill writing processes: 10,000 of them, or CRASH_CYCLES; ARGS='--seed 7' repeats a run
	@$(python) tests/crash/killing/laboratory.py --cycles $${CRASH_CYCLES:-10000} $(ARGS)

power-cuts: ready ## Cut the power below ext4 and XFS: 10,000 images, or CUT_IMAGES; needs root
	@$(python) tests/crash/blocks/power_cut_lab.py --images $${CUT_IMAGES:-10000} \
		--per-device 100 $(ARGS)

check: ready ## Lint, types, import contracts and the rules about the repository
	@failed=''; \
	run() { echo "== $$1"; name=$$1; shift; "$$@" || failed="$$failed, $$name"; }; \
	run 'ruff check' $(python) -m ruff check; \
	run 'ruff format' $(python) -m ruff format --check; \
	run 'mypy' $(python) -m mypy; \
	run 'lint-imports' $(venv)/bin/lint-imports --no-logo; \
	run 'tidy' $(python) -m pytest -q tests/tidy; \
	if [ -n "$$failed" ]; then echo "check failed: $${failed#, }"; exit 1; fi; \
	echo 'check passed'

format: ready ## Format the code and fix what lint can fix
	@$(python) -m ruff check --fix; status=$$?; $(python) -m ruff format && exit $$status

bench: ready ## Run the benchmarks: name, measured, wanted, ok or short
	@$(python) benchmarks/run.py $(ARGS)

clean: ## Remove what was built and cached; .venv and data stay
	@rm -rf build dist src/*.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache
	@rm -f src/rocketlake/format/_kernel/native.c src/rocketlake/format/_kernel/native*.so \
		$(venv)/rocketlake-setup.json
	@find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
