# Everything a person does with a checkout. `make help` lists it. Needs make and Python 3.11 or later, nothing else.

# The first interpreter that is new enough; another one: `make demo PYTHON=python3.13`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
READY := .venv/.installed
DEMO := .venv/.demo

.DEFAULT_GOAL := help
.PHONY: demo check test nightly sim live screenshots audit docs lint fmt bench bench-queue lock clean help

demo: $(DEMO)  ## run a training job on the local stack, through a preemption, and follow it live
	@$(BIN)/tpujob demo

check: $(READY)  ## while you write: lint of what you changed, and pure tests; half a minute
	@$(BIN)/python -m tests.run check

test: $(READY)  ## before you commit: every check, and every test that takes no longer than seconds; seven minutes
	@$(BIN)/python -m tests.run test

# MINUTES=20: no further test begins after that. ONLY=gcloud: one folder of tests/nightly.
nightly: $(READY)  ## what takes longer: whole stacks, kills, gcloud, training; forty minutes
	@$(BIN)/python -m $(if $(ONLY),pytest tests/nightly/$(ONLY),tests.run nightly $(if $(MINUTES),--minutes=$(MINUTES)))

# How many; `make sim SEEDS=5000` is the long run. Of them, this part is new each time. Kill points of each story, at
# most; 0: none of them.
SEEDS ?= 100
FRESH ?= 0.4
POINTS ?= 40

sim: $(READY)  ## recovery under a virtual clock: faults and kills by the thousand, every invariant checked
	@$(BIN)/python -m tests.support.simulation --seeds $(SEEDS) --fresh $(FRESH) --points $(POINTS)
	@$(BIN)/python -m pytest -q tests/flow/simulation/test_mutants.py

# TPUJOB_LIVE_PROJECT, _ZONE and _BUCKET name a real project; _USD bounds what the run may cost.
live: $(READY)  ## what no document says, asked of a real project with one slice, for cents; without one, of the emulator
	@$(BIN)/python -m pytest -rs tests/live

screenshots: $(READY)  ## the pictures in docs/page, made again
	@TPUJOB_SCREENSHOTS=1 $(BIN)/python -m pytest tests/nightly/page/test_screenshots.py

# What is known of locked versions is asked of a server; where there is none, that is an error and no success.
audit: $(READY)  ## known holes in the locked packages (pip-audit), which needs a server that knows them
	@for lock in requirements.lock requirements-libtpu.lock deploy/requirements.lock workloads/requirements.lock; do \
		$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement $$lock || { \
		echo "$$lock was not audited, or holds what is named above: see the last line of pip-audit" >&2; exit 1; }; done

docs: $(READY)  ## docs/commands.md and docs/job-file.md, from the command line and the schema
	@$(BIN)/python -m tests.support.generated_docs

# CHANGED=1: types of the files of tpujob/ that a branch or the working tree has changed, against main, where there is one.
lint: $(READY)  ## format, lint, types, the direction of imports, bandit; and how large the house is
	$(BIN)/ruff check
	$(BIN)/ruff format --check
ifdef CHANGED
	@changed=$$({ git diff --name-only --diff-filter=d main -- 'tpujob/*.py' || \
		git diff --name-only --diff-filter=d HEAD -- 'tpujob/*.py'; \
		git ls-files --others --exclude-standard -- 'tpujob/*.py'; } 2>/dev/null | sort -u); \
		if [ -n "$$changed" ]; then $(BIN)/basedpyright $$changed; fi
else
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --severity-level medium --recursive tpujob workloads
	@$(BIN)/python -m tests.support.figures
endif

fmt: $(READY)  ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

# Experiments, which take longer: tests/bench/README.md.
# POLICY=1: only the table of deadlines in docs/queue.md, from recorded spot capacity.
bench: $(if $(POLICY),$(READY),bench-queue)  ## figures: commands and the store, the table of docs/cost.md, the queue
ifdef POLICY
	@$(BIN)/python -m tests.bench.bench_policy
else
	@$(BIN)/python -m tests.bench.bench_cli
	@$(BIN)/python -m tests.bench.bench_costs
	@$(BIN)/python -m tests.bench.bench_queue
endif

bench-queue: $(READY)  ## figures of the queue with jobs of all sizes, and what each owner gets
	@$(BIN)/python -m tests.bench.bench_sizes

COMPILE := $(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-annotate
# What the bundled programs import: the extra of that name, on the Linux of a TPU VM. libtpu's wheels begin with 2_31.
EXTRA := $(BIN)/python -c "import tomllib; e = tomllib.load(open('pyproject.toml', 'rb')); \
	print(*e['project']['optional-dependencies']['workloads'], 'jax[tpu]', sep='\n')"

# libtpu has a lock of its own, as not every machine can install it.
LIBTPU := awk '/^[^ ]/ { on = /^libtpu==/ } on' > requirements-libtpu.lock

# `fewest`: one version of a package for every Python, so that what the tests ran is what everybody gets.
UNIVERSAL := $(COMPILE) pyproject.toml --universal --fork-strategy fewest

lock: $(READY)  ## resolve requirements.lock again, for every Python and platform at once, and those made from it
	$(UNIVERSAL) --upgrade --all-extras --group dev --no-emit-package libtpu --output-file requirements.lock
	$(UNIVERSAL) --constraint requirements.lock --extra check | $(LIBTPU)
	$(UNIVERSAL) --constraint requirements.lock --extra emulator --extra workloads --group build \
		--output-file requirements-demo.lock
	$(UNIVERSAL) --constraint requirements.lock --output-file deploy/requirements.lock
	$(EXTRA) | $(COMPILE) - --python-platform x86_64-manylinux_2_31 --constraint requirements.lock \
		--output-file workloads/requirements.lock

clean:  ## remove .venv and every cache; jobs and their state stay where they are
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The demo needs less: no tools of developers.
$(DEMO): requirements-demo.lock pyproject.toml
	@sh venv.sh "$(PYTHON)" demo

$(READY): requirements.lock requirements-libtpu.lock pyproject.toml
	@sh venv.sh "$(PYTHON)" all
