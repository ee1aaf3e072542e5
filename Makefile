# Everything is set up by the targets themselves: a virtual environment, then what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GROUPS_DONE := $(VENV)/.groups-

.PHONY: help demo test lint bench-tools bench peers clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

# one stamp a dependency group, made anew when the project file changes
$(GROUPS_DONE)%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[cli]' --group $*
	@touch $@

demo: $(GROUPS_DONE)demo ## generate the two records' transcripts, open them, show the newest messages and the times
	$(BIN)/python -m tools.demo

test: $(GROUPS_DONE)test ## run the tests
	$(BIN)/python -m pytest

lint: $(GROUPS_DONE)test $(GROUPS_DONE)lint ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-tools: $(GROUPS_DONE)bench ## install what the benchmarks need, and nothing more

bench: $(GROUPS_DONE)bench ## measure every promised cost against its limit
	$(BIN)/python -m asv_bench.report

peers: $(GROUPS_DONE)bench $(GROUPS_DONE)peers ## compare with what one would use instead
	$(BIN)/python -m asv_bench.peers

clean: ## remove the virtual environment and what the tools left
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
