# Every target sets itself up in .venv, and does so again only when requirements.txt or
# pyproject.toml has changed. `make PYTHON=python3.12` chooses the Python it is made of.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m
PIP := $(RUN) pip --disable-pip-version-check install --quiet

# INSTALLED is written last. UNFINISHED is there only while set-up works, so that one
# that was interrupted is thrown away rather than trusted.
INSTALLED := $(VENV)/.installed
UNFINISHED := $(VENV)/.unfinished
NOTEBOOK := $(VENV)/.installed-notebook

# PyTorch Geometric, for `make benchmark PEER=1` alone: an environment of its own.
PEER_VENV := .venv-benchmark
PEER_INSTALLED := $(PEER_VENV)/.installed
PEER_WHEELS := $(wildcard ../shared/wheels/*.whl)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup check format test test-all data reproduce inductive neighbors \
	scaling morphing iterations benchmark notebook docs clean

# $(call option,seed,SEED): "--seed 'the value'" if SEED was given, else nothing.
option = $(if $($(2)),--$(1) '$($(2))')
comma := ,

# Said at once, before any set-up.
ifeq ($(filter reproduce,$(MAKECMDGOALS))$(DATASET),reproduce)
$(error Say which dataset: make reproduce DATASET=pubmed, or DATASET=all)
endif

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nPYTHON=python3.12 chooses the Python to set up with; ARGS="..." is passed on.\n'

setup: $(INSTALLED) ## Install everything into .venv (the other targets do this themselves)

$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hopf_jax needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Try: make PYTHON=python3.11" % sys.version_info[:2])'
	@if [ -e $(UNFINISHED) ]; then rm -rf $(VENV); fi
	@echo 'Setting up $(VENV) (once; a minute or two)'
	@rm -f $(INSTALLED) $(NOTEBOOK)
	@mkdir -p $(VENV)
	@touch $(UNFINISHED)
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --requirement requirements.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@rm $(UNFINISHED)
	@touch $@

$(NOTEBOOK): $(INSTALLED)
	@echo 'Adding Jupyter to $(VENV) (once)'
	@$(PIP) --constraint requirements.txt --no-build-isolation --editable '.[notebook]'
	@touch $@

$(PEER_INSTALLED): requirements-benchmark.txt $(INSTALLED)
	@echo 'Setting up $(PEER_VENV) with PyTorch Geometric (once; some minutes)'
	@rm -rf $(PEER_VENV)
	@$(PYTHON) -m venv $(PEER_VENV)
	@$(PEER_VENV)/bin/python -m pip --disable-pip-version-check install --quiet \
		--requirement requirements-benchmark.txt $(PEER_WHEELS)
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
	$(RUN) pytest -n 2 --dist worksteal $(ARGS)

test-all: $(INSTALLED) ## Run all the tests
	$(RUN) pytest -n 2 --dist worksteal -m '' $(ARGS)

data: $(INSTALLED) ## Fetch and check the datasets [DATASET=cora,pubmed]
	$(RUN) experiments.data $(subst $(comma), ,$(DATASET)) $(ARGS)

reproduce: $(INSTALLED) ## Table 3: DATASET=pubmed|all [MODELS=a,b FOLDS=1,2 SEED=0 HOPS=2|auto TOGETHER=1 FRESH=1 WORKDIR=results]
	$(RUN) experiments.reproduce \
		$(call option,dataset,DATASET) $(call option,models,MODELS) \
		$(call option,folds,FOLDS) $(call option,seed,SEED) $(call option,hops,HOPS) \
		$(if $(filter-out 0,$(TOGETHER)),--together) \
		$(if $(filter-out 0,$(FRESH)),--fresh) $(call option,workdir,WORKDIR) $(ARGS)

inductive: $(INSTALLED) ## Table 4: train on some tissues, predict on others
	$(RUN) experiments.inductive $(ARGS)

neighbors: $(INSTALLED) ## Figure 2: F1 against the share of neighbours considered
	$(RUN) experiments.neighbors $(ARGS)

scaling: $(INSTALLED) ## Figure 3: time and memory of an epoch against hops
	$(RUN) experiments.scaling $(ARGS)

morphing: $(INSTALLED) ## How much of a node's own information each kernel keeps
	$(RUN) experiments.morphing $(ARGS)

iterations: $(INSTALLED) ## F1 by iteration for each kind of label summaries, and the leak
	$(RUN) experiments.iterations $(ARGS)

benchmark: $(INSTALLED) $(if $(filter-out 0,$(PEER)),$(PEER_INSTALLED)) ## Measure speed and memory [PEER=1 installs PyTorch Geometric, to compare]
	$(RUN) experiments.benchmark $(ARGS)

notebook: $(NOTEBOOK) ## Open the notebooks in Jupyter Lab
	$(RUN) jupyter lab --notebook-dir experiments/notebooks $(ARGS)

docs: $(INSTALLED) ## Build the documentation into docs/_build/html
	$(RUN) sphinx -W --keep-going -q -b html docs docs/_build/html $(ARGS)
	@echo 'docs/_build/html/index.html'

clean: ## Remove .venv, .venv-benchmark and what the tools leave behind (not results, not data)
	rm -rf $(VENV) $(PEER_VENV) build dist docs/_build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
