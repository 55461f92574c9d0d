# make try: a first result, in two to four minutes with the install.  make all: every table and figure.
# make medium: the same at a scale worth looking at.
# make test: the test suite, style and types among it.
# make test-quick: the part of it to run at every change.  All install what they need.
# make test-cluster: the pipeline on a Slurm of its own.
# make campaign: what becomes of records and commands when things go wrong, see docs/faults.md.
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := torch,gpu,dynet,tensorflow,jax,torchfold,plots,pipeline,lexicon,test,dev
# The pipeline's options, e.g. make all CONFIG="scale=paper threads=2"
CONFIG ?=
# More for Snakemake, e.g. make all SNAKEMAKE=--quiet. Not its --config: of two, it takes the last.
SNAKEMAKE ?=

# One process a CPU, up to 8; each test file runs in one of them, so that it prepares things once.
PROCESSES ?= $(shell n=$$(nproc); echo $$((n < 8 ? n : 8)))
# make test CPU=avx2: as on a CPU without AVX-512, on any x86-64 with AVX2. Some shells export a CPU
# of their own, which counts for nothing.
CPU :=
CPUS := $(patsubst tests/support/%_cpu.py,%,$(wildcard tests/support/*_cpu.py))
ifneq ($(filter-out $(CPUS),$(CPU)),)
$(error CPU=$(CPU) is unknown; choose one of: $(CPUS), or leave it out for this CPU)
endif
# Of OpenBLAS no variable of the shell chooses the kernels.
PYTEST := env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python -m pytest $(if $(CPU),-p tests.support.$(CPU)_cpu) -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# A folder of wheels to install from, where there is no network; see make wheelhouse.
OFFLINE ?=
# What that machine has: its Python, and the file with what pip freeze says there.
BOX_PYTHON ?= 3.12
BOX_PACKAGES ?=
# A file of packages with their hashes, to install no others; make hashes HASHES=FILE writes one.
HASHES ?=
MINUTES ?= 9

.PHONY: all try medium install test test-quick test-cluster campaign dynet-native hashes wheelhouse gpu clean

all: install
	$(BIN)/snakemake all $(if $(CONFIG),--config $(CONFIG)) $(SNAKEMAKE)

# Three systems on one workload: a table, a picture, and what they say.
try: install
	$(if $(CONFIG),$(error make try takes no CONFIG; say make all CONFIG="$(CONFIG)" instead))
	$(BIN)/python -m harness.commands.first_look

# Papers' shapes with fewer points, six rounds for headlines: what is worth looking at.
medium: install
	$(if $(findstring --config,$(SNAKEMAKE)),$(error SNAKEMAKE has --config, which would replace scale=medium; say CONFIG="key=value" instead))
	$(BIN)/snakemake all --config scale=medium $(CONFIG) $(SNAKEMAKE)

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifdef OFFLINE
	$(BIN)/python -m scripts.offline_packages install $(OFFLINE) --beside $(PYTHON)
else ifdef HASHES
	$(BIN)/python -m scripts.hashed_packages install $(HASHES)
else
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable ".[$(EXTRAS)]"
endif
	$(BIN)/python -m harness.commands.compile_ahead
	touch $@

# Of what make install takes here, for make install HASHES=FILE on machines as this one.
hashes:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m scripts.hashed_packages write $(if $(HASHES),$(HASHES),$(error say HASHES=FILE)) --extras $(EXTRAS)

# Property tests draw the same examples every time; new ones: pytest --hypothesis-profile=explore
test: install
	$(PYTEST) -m "not cluster and not campaign"

test-quick: install
	$(PYTEST) -m "not slow and not dynet and not cluster and not campaign"

# The pipeline on a Slurm of its own, which it starts and stops: as root, where Debian's munge,
# slurmctld, slurmd and slurm-client are installed; and what Kubernetes would be told.
test-cluster:
	$(MAKE) --always-make install EXTRAS=$(EXTRAS),cluster
	$(BIN)/python -m pytest -m cluster

# Faults injected into commands, their disks, caches and inputs (docs/faults.md): an hour or more on 2
# cores. CAMPAIGN="-k kills": one file of it.
CAMPAIGN ?=
campaign: install
	$(BIN)/python -m pytest tests/campaign --hypothesis-profile=campaign $(CAMPAIGN)

# Real DyNet built from source, which headline ratios are taken against; needs a C++ compiler.
dynet-native: install
	PYTHON=$(BIN)/python bash scripts/build_dynet_native.sh

# What a machine with a GPU and without a network lacks, for make install OFFLINE=wheelhouse there,
# with a PyTorch, Triton and NumPy of its own.
wheelhouse: install
	$(BIN)/python -m scripts.offline_packages collect wheelhouse --python $(BOX_PYTHON) $(if $(BOX_PACKAGES),--box $(BOX_PACKAGES))

# All that is to be done where there is a GPU, in steps: call it until every step is over.
gpu: install
	$(BIN)/python -m scripts.gpu_job --minutes $(MINUTES)

# Results, except the committed ones under results/reference, and what tools left; not .venv.
clean:
	find results -mindepth 1 -maxdepth 1 ! -name reference ! -name .gitkeep -exec rm -r {} +
	rm -rf .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
