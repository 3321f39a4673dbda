# Every target sets itself up in .venv, and does so again only when requirements.txt or
# pyproject.toml has changed. `make PYTHON=python3.12` chooses the Python it is made of.

PYTHON ?= python3

# What users give is text. make would expand $(...) in it, and a shell would execute what
# is pasted into a command: so it is kept as it was given, and recipes read it from their
# environment, in quotes.
GIVEN := PYTHON ARGS DATASET MODELS FOLDS SEED HOPS TOGETHER FRESH WORKDIR PEER
# All of a command line's too, since make hands those on to its recipes, expanded.
TYPED := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
$(foreach name,$(GIVEN) $(TYPED),$(eval override $(name) := $$(value $(name))))
export $(GIVEN)

VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m
PIP := -m pip --disable-pip-version-check install --quiet

# ARGS is split into words as a shell does, quotes included, but nothing in it is executed.
ifneq ($(ARGS),)
RUN_WITH_ARGS := $(BIN)/python -c 'import os, shlex, sys; os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:], *shlex.split(os.environ["ARGS"])])'
else
RUN_WITH_ARGS := $(RUN)
endif

# INSTALLED is written last. UNFINISHED is there only while set-up works, so that one
# that was interrupted is thrown away rather than trusted.
INSTALLED := $(VENV)/.installed
UNFINISHED := $(VENV)/.unfinished
NOTEBOOK := $(VENV)/.installed-notebook

# PyTorch Geometric, for `make benchmark PEER=1` alone: an environment of its own.
PEER_VENV := .venv-benchmark
PEER_INSTALLED := $(PEER_VENV)/.installed

# libtpu, the compiler for TPUs, for `make test-tpu` alone.
TPU_VENV := .venv-tpu
TPU_INSTALLED := $(TPU_VENV)/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup check format test test-all test-tpu data reproduce inductive neighbors \
	scaling morphing iterations panel leaderboard benchmark notebook docs lock audit clean

# $(call option,seed,SEED): --seed "$SEED" if SEED was given, else nothing.
option = $(if $($(2)),--$(1) "$$$(2)")

# Compiled programs are kept between runs, in a private folder of the user's cache;
# HOPF_KEEP_PROGRAMS=0 switches that off. Not where compilation is measured or tested.
reproduce inductive neighbors scaling morphing iterations panel notebook: export HOPF_KEEP_PROGRAMS ?= 1

# Said at once, before any set-up.
ifeq ($(filter reproduce,$(MAKECMDGOALS))$(DATASET),reproduce)
$(error Say which dataset: make reproduce DATASET=pubmed, or DATASET=all)
endif

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nPYTHON=python3.12 chooses the Python to set up with; ARGS="..." is passed on.\n'

setup: $(INSTALLED) ## Install everything into .venv (the other targets do this themselves)

$(INSTALLED): requirements.txt pyproject.toml
	@"$$PYTHON" -c 'import os, sys; sys.exit(sys.version_info < (3, 11) and "hopf_jax needs Python 3.11 or newer, and %s is %d.%d. Try: make PYTHON=python3.11" % (os.environ["PYTHON"], *sys.version_info[:2]))'
	@if [ -e $(UNFINISHED) ]; then rm -rf $(VENV); fi
	@echo 'Setting up $(VENV) (once; a minute or two)'
	@rm -f $(INSTALLED) $(NOTEBOOK)
	@mkdir -p $(VENV)
	@touch $(UNFINISHED)
	@"$$PYTHON" -m venv $(VENV)
	@$(BIN)/python $(PIP) --require-hashes --requirement requirements.txt
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@rm $(UNFINISHED)
	@touch $@

$(NOTEBOOK): requirements-notebook.txt $(INSTALLED)
	@echo 'Adding Jupyter to $(VENV) (once)'
	@$(BIN)/python $(PIP) --require-hashes --requirement requirements-notebook.txt
	@touch $@

$(PEER_INSTALLED): requirements-benchmark.txt $(INSTALLED)
	@echo 'Setting up $(PEER_VENV) with PyTorch Geometric (once; some minutes)'
	@rm -rf $(PEER_VENV)
	@"$$PYTHON" -m venv $(PEER_VENV)
	@set -- ../shared/wheels/*.whl; if [ ! -e "$$1" ]; then set --; fi; \
		$(PEER_VENV)/bin/python $(PIP) --requirement requirements-benchmark.txt "$$@"
	@touch $@

# The extra [tpu] of the pinned jax, so that the compiler is the one of that version.
$(TPU_INSTALLED): requirements.txt pyproject.toml
	@echo 'Setting up $(TPU_VENV) with libtpu (once; some minutes)'
	@rm -rf $(TPU_VENV)
	@"$$PYTHON" -m venv $(TPU_VENV)
	@$(TPU_VENV)/bin/python $(PIP) --require-hashes --requirement requirements.txt
	@$(TPU_VENV)/bin/python $(PIP) --no-deps --no-build-isolation --editable .
	@$(TPU_VENV)/bin/python $(PIP) "jax[tpu]==$$($(TPU_VENV)/bin/python -c 'import jax; print(jax.__version__)')"
	@touch $@

check: $(INSTALLED) ## Check format, lint and types
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy

format: $(INSTALLED) ## Format the code, and mend what the linter can mend
	$(RUN) ruff check --fix-only .
	$(RUN) ruff format .

# Two workers: a worker needs up to a gigabyte, and most of a test is compilation, on one
# core. worksteal keeps a file's tests together as long as there is enough to do.
test: $(INSTALLED) ## Run the tests but the slow ones
	$(RUN_WITH_ARGS) pytest -n 2 --dist worksteal

test-all: $(INSTALLED) ## Run all the tests
	$(RUN_WITH_ARGS) pytest -n 2 --dist worksteal -m ''

test-tpu: $(TPU_INSTALLED) ## Compile all kernels for TPUs, without one, and count slow operations [WORKDIR=results]
	$(RUN_WITH_ARGS:$(BIN)/%=$(TPU_VENV)/bin/%) experiments.accelerators $(call option,workdir,WORKDIR)

data: $(INSTALLED) ## Fetch and check the datasets [DATASET=cora,pubmed]
	$(RUN_WITH_ARGS) experiments.data $(if $(DATASET),"$$DATASET")

reproduce: $(INSTALLED) ## Table 3: DATASET=pubmed|all [MODELS=a,b FOLDS=1,2 SEED=0 HOPS=2|auto TOGETHER=1 FRESH=1 WORKDIR=results]
	$(RUN_WITH_ARGS) experiments.reproduce \
		$(call option,dataset,DATASET) $(call option,models,MODELS) \
		$(call option,folds,FOLDS) $(call option,seed,SEED) $(call option,hops,HOPS) \
		$(if $(filter-out 0,$(TOGETHER)),--together) \
		$(if $(filter-out 0,$(FRESH)),--fresh) $(call option,workdir,WORKDIR)

inductive: $(INSTALLED) ## Table 4: train on some tissues, predict on others
	$(RUN_WITH_ARGS) experiments.inductive

neighbors: $(INSTALLED) ## Figure 2: F1 against the share of neighbours considered
	$(RUN_WITH_ARGS) experiments.neighbors

scaling: $(INSTALLED) ## Figure 3: time and memory of an epoch against hops
	$(RUN_WITH_ARGS) experiments.scaling

morphing: $(INSTALLED) ## How much of a node's own information each kernel keeps
	$(RUN_WITH_ARGS) experiments.morphing

iterations: $(INSTALLED) ## F1 by iteration for each kind of label summaries, and the leak
	$(RUN_WITH_ARGS) experiments.iterations

panel: $(INSTALLED) $(if $(filter-out 0,$(PEER)),$(PEER_INSTALLED)) ## `fit(graph)` against simple methods, on graphs of many kinds [PEER=1 installs PyTorch Geometric, to compare]
	$(RUN_WITH_ARGS) experiments.panel

leaderboard: $(INSTALLED) $(if $(filter-out 0,$(PEER)),$(PEER_INSTALLED)) ## All methods on all datasets on this machine [DATASET, FOLDS, SEED; PEER=1 installs PyTorch Geometric, to compare]
	$(RUN_WITH_ARGS) experiments.leaderboard $(call option,dataset,DATASET) $(call option,folds,FOLDS) $(call option,seed,SEED) $(call option,workdir,WORKDIR) $(if $(filter-out 0,$(FRESH)),--fresh)

benchmark: $(INSTALLED) $(if $(filter-out 0,$(PEER)),$(PEER_INSTALLED)) ## Measure speed and memory [PEER=1 installs PyTorch Geometric, to compare]
	$(RUN_WITH_ARGS) experiments.benchmark

notebook: $(NOTEBOOK) ## Open the notebooks in Jupyter Lab
	$(RUN_WITH_ARGS) jupyter lab --notebook-dir experiments/notebooks

docs: $(INSTALLED) ## Build the documentation into docs/_build/html
	$(RUN_WITH_ARGS) sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo 'docs/_build/html/index.html'

# Tools that look at the lists of requirements, in an environment that is thrown away.
TOOLS = made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && "$$PYTHON" -m venv "$$made" && \
	"$$made/bin/python" $(PIP) --require-hashes --requirement requirements-tools.txt
COMPILE := "$$made/bin/uv" pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-annotate --no-strip-extras \
	--custom-compile-command 'make lock'

lock: ## Write the lists of requirements with hashes, from requirements.in
	@$(TOOLS) && \
	$(COMPILE) requirements.in --output-file requirements.txt && \
	$(COMPILE) pyproject.toml --extra notebook --constraint requirements.in --output-file requirements-notebook.txt && \
	$(COMPILE) requirements-tools.in --output-file requirements-tools.txt && \
	$(COMPILE) experiments/jobs/requirements.in --output-file experiments/jobs/requirements.txt

# Without an answer from osv.dev pip-audit would crash with pages of Python.
audit: ## Look for known vulnerabilities in all that is pinned (asks osv.dev)
	@$(TOOLS) && { "$$made/bin/python" -c 'import requests; requests.post("https://api.osv.dev/v1/query", timeout=30, json={"package": {"name": "pip", "ecosystem": "PyPI"}}).raise_for_status()' 2> /dev/null || \
		{ echo 'make audit: api.osv.dev, which knows the vulnerabilities, cannot be reached. Nothing was audited.' >&2; exit 3; }; } && \
	status=0 && for list in requirements.txt requirements-notebook.txt requirements-tools.txt experiments/jobs/requirements.txt; do \
		echo "$$list"; "$$made/bin/pip-audit" --strict --disable-pip --require-hashes \
			--vulnerability-service osv --requirement "$$list" || status=$$?; done && exit $$status

clean: ## Remove .venv, .venv-benchmark, .venv-tpu and what the tools leave behind (not results, not data)
	rm -rf $(VENV) $(PEER_VENV) $(TPU_VENV) build dist docs/_build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
