# make audit [TARGET=my_target.py]   what a model gives away about who was in its training, and a report
# make test                          the whole test suite
# make lint                          format, lint, types, direction of imports

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
REPORT ?= report.html
TARGET ?=
JOBS ?= 2

.PHONY: audit demo test lint docs clean
.DELETE_ON_ERROR:

audit: $(READY)
	@$(BIN)/engram audit $(TARGET) --report $(REPORT)

demo: $(READY)
	@$(BIN)/engram demo

test: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(f"engram needs Python 3.11 to 3.13, got {v[0]}.{v[1]}; name one with PYTHON=python3.12") if not (3, 11) <= v[:2] < (3, 14) else None'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python lacks the venv module; install it, for example with: apt install python3-venv"; exit 2; }
	@echo "setting up .venv (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist
