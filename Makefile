# Everything a person does with a checkout. `make help` lists it. Needs make and Python 3.11 or later, nothing else.

# The first interpreter that is new enough; another one: `make demo PYTHON=python3.13`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
READY := .venv/.installed
DEMO := .venv/.demo

.DEFAULT_GOAL := help
.PHONY: demo check test nightly test-all check-models sim estimator live hf kills page screenshots checkpoints verdicts equality workloads fuzz audit docs lint lint-changed fmt bench bench-scale speed lock clean help

demo: $(DEMO)  ## run a training job on the local stack, through a preemption, and follow it live
	@$(BIN)/tpujob demo

check: $(READY)  ## while you write: lint of what you changed, and pure tests; half a minute
	@$(BIN)/python -m tests.run check

test: $(READY)  ## before you commit: every check, and every test that takes no longer than seconds; seven minutes
	@$(BIN)/python -m tests.run test

# MINUTES=20: no further test begins after that. ONLY=gcloud: one folder of tests/nightly.
nightly: $(READY)  ## what takes longer: whole stacks, kills, gcloud, training; forty minutes
	@$(BIN)/python -m $(if $(ONLY),pytest tests/nightly/$(ONLY),tests.run nightly $(if $(MINUTES),--minutes=$(MINUTES)))

test-all: test nightly  ## everything, before a release

check-models: $(READY)  ## Llamas of 1B and 8B, compiled for slices that are not here; about five minutes
	@$(BIN)/python -m tests.bench.check_models

# How many; `make sim SEEDS=5000` is the long run. Of them, this part is new each time. Kill points of each story, at
# most; 0: none of them.
SEEDS ?= 100
FRESH ?= 0.4
POINTS ?= 40

sim: $(READY)  ## recovery under a virtual clock: faults and kills by the thousand, every invariant checked
	@$(BIN)/python -m tests.support.simulation --seeds $(SEEDS) --fresh $(FRESH) --points $(POINTS)
	@$(BIN)/python -m pytest -q tests/flow/simulation/test_mutants.py

# Spot histories of your own: TPUJOB_SPOT_TRACES=FOLDER.
estimator: $(READY)  ## 500 jobs, estimated and then simulated: how often the range holds what they cost; ten minutes
	@$(BIN)/python -m tests.bench.estimator --jobs $(or $(JOBS),500)

# In a Python that has torch and transformers: HF=/path/to/python.
HF ?= python3

hf: $(READY)  ## the tiny Llama of the tests made again by transformers, and one of ours that it reads and compares
	@$(HF) tests/unit/workloads/data/make_llama.py
	@folder=$$(mktemp -d) && $(BIN)/python -m tests.unit.workloads.data.export_llama $$folder && \
		$(HF) tests/unit/workloads/data/make_llama.py $$folder

kills: $(READY)  ## data sync and the backend, killed at many points; KILLS=30 of each sync and of the backend
	@TPUJOB_KILLS=$(or $(KILLS),30) TPUJOB_RACES=1000 $(BIN)/python -m pytest tests/nightly/kills \
		tests/contract/data/test_races.py

page: $(READY)  ## every page in a browser, many tabs, and a job of the whole stack; about twenty minutes
	@$(BIN)/python -m pytest tests/nightly/page

verdicts: $(READY)  ## faults in each layer of a model, on each device of each mesh: whom the replay blames
	@TPUJOB_VERDICTS=all $(BIN)/python -m pytest tests/unit/workloads/test_blame.py tests/nightly/training/test_verdicts.py

equality: $(READY)  ## training, interrupted at 20 random steps on one host and on two: equal to the bit; five minutes
	@$(BIN)/python -m tests.bench.equality --interruptions=$(or $(TIMES),20)

workloads: $(READY)  ## the bundled programs trained until they are as good as docs/workloads.md says; about eight minutes
	@XLA_FLAGS= $(BIN)/python -m pytest -m 'slow or long' tests/unit/workloads tests/nightly/training

# TPUJOB_LIVE_PROJECT, _ZONE and _BUCKET name a real project; _USD bounds what the run may cost.
live: $(READY)  ## what no document says, asked of a real project with one slice, for cents; without one, of the emulator
	@$(BIN)/python -m pytest -rs tests/live

screenshots: $(READY)  ## the pictures in docs/page, made again
	@TPUJOB_SCREENSHOTS=1 $(BIN)/python -m pytest tests/nightly/page/test_screenshots.py

checkpoints: $(READY)  ## checkpoints that are damaged in 4 ways and by FLIPS=24 flipped bits
	@TPUJOB_FLIPS=$(or $(FLIPS),24) $(BIN)/python -m pytest tests/nightly/training/test_checkpoints.py

fuzz: $(READY)  ## the API, job files, headers and what hosts say, with CASES=100000 odd inputs; ten to twenty minutes
	@TPUJOB_FUZZ=$(or $(CASES),100000) $(BIN)/python -m pytest --timeout=3600 tests/nightly/fuzz tests/contract/web/test_log.py

# What is known of locked versions is asked of a server; where there is none, that is an error and no success.
audit: $(READY)  ## known holes in the locked packages (pip-audit), which needs a server that knows them
	@for lock in requirements.lock requirements-libtpu.lock deploy/requirements.lock workloads/requirements.lock; do \
		$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement $$lock || { \
		echo "$$lock was not audited, or holds what is named above: see the last line of pip-audit" >&2; exit 1; }; done

docs: $(READY)  ## docs/commands.md and docs/job-file.md, from the command line and the schema
	@$(BIN)/python -m tests.support.generated_docs

lint: $(READY)  ## format, lint, types, the direction of imports, and bandit
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --severity-level medium --recursive tpujob workloads
	@$(BIN)/python -m tests.support.figures

# Of main, where there is one: files that a branch or the working tree has changed.
lint-changed: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@changed=$$({ git diff --name-only --diff-filter=d main -- '*.py' || git diff --name-only --diff-filter=d HEAD -- '*.py'; \
		git ls-files --others --exclude-standard -- '*.py'; } 2>/dev/null | sort -u); \
		if [ -n "$$changed" ]; then $(BIN)/basedpyright $$changed; fi

fmt: $(READY)  ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

bench: $(READY)  ## figures: commands and the store, the table of docs/cost.md, the queue
	@$(BIN)/python -m tests.bench.bench_cli
	@$(BIN)/python -m tests.bench.bench_costs
	@$(BIN)/python -m tests.bench.bench_queue

bench-scale: $(READY)  ## a real backend with JOBS=10000 on simulated hosts: CPU, memory, lists, recovery; half an hour
	@$(BIN)/python -m tests.bench.scale $(or $(JOBS),10000)

speed: $(READY)  ## figures of training on one GPU
	@$(BIN)/python -m tests.bench.speed

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
