# Everything is set up by the targets themselves: a virtual environment, then what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GROUPS_DONE := $(VENV)/.groups-

.PHONY: help demo test lint bench-tools bench peers growth clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 17

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

.PHONY: bench-compare
bench-compare: $(GROUPS_DONE)bench ## measure what got slower since a commit: BASE=main~1
	$(BIN)/python -m asv_bench.compare $(or $(BASE),$(error BASE=REVISION says what to compare with))

peers: $(GROUPS_DONE)bench $(GROUPS_DONE)peers $(GROUPS_DONE)plots ## compare with what one would use instead, and draw it
	$(BIN)/python -m asv_bench.peers --json docs/peers.json --plot docs/peers.svg

# MAX=256MB leaves the larger sizes out
growth: $(GROUPS_DONE)bench $(GROUPS_DONE)plots ## measure cost against size up to 8 GB, and draw it
	$(BIN)/python -m asv_bench.growth $(addprefix --max=,$(MAX)) --json docs/growth.json --plot docs/growth.svg

.PHONY: record dashboard browser-tools
MACHINE ?= ci-2core
RANGE ?= HEAD^!

# MACHINE names the series, RANGE the commits, BENCH some of the benchmarks
record: $(GROUPS_DONE)bench ## measure a commit with asv, and keep the result in the repository
	$(BIN)/python -m asv_bench.history record --machine '$(MACHINE)' $(if $(BENCH),--bench '$(BENCH)') '$(RANGE)'

dashboard: $(GROUPS_DONE)bench ## make a site of the kept results, which draws without a network
	$(BIN)/python -m asv_bench.dashboard

browser-tools: $(GROUPS_DONE)browser ## install what the test of the dashboard drives a browser with

.PHONY: torture
# NAME=kills runs one of them
torture: $(GROUPS_DONE)test ## make things fail under a host for a quarter of an hour, and look for what is lost
	set -e; for name in $(or $(NAME),kills syscalls strace power readers clients nofile); do \
		$(BIN)/python -m tools.torture $$name; done

clean: ## remove the virtual environment and what the tools left
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
