# make all: every table and figure.  make test: the test suite, style and types among it.
# Both install what they need.
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := torch,dynet,plots,pipeline,lexicon,test,dev
# More for Snakemake, e.g. make all SNAKEMAKE="--config scale=paper"
SNAKEMAKE ?=

.PHONY: all install test dynet-native clean

all: install
	$(BIN)/snakemake all $(SNAKEMAKE)

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable ".[$(EXTRAS)]"
	touch $@

# Property tests draw the same examples every time; new ones: pytest --hypothesis-profile=explore
test: install
	$(BIN)/python -m pytest

# Real DyNet built from source, which headline ratios are taken against; needs a C++ compiler.
dynet-native: install
	PYTHON=$(BIN)/python bash scripts/build_dynet_native.sh

# Results, except the committed ones under results/reference, and what tools left; not .venv.
clean:
	find results -mindepth 1 -maxdepth 1 ! -name reference ! -name .gitkeep -exec rm -r {} +
	rm -rf .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
