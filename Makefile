# make try: a first result, in two to six minutes with the install.
# make all: every table and figure.
# make medium: the same at a scale worth looking at.
# make verify-reference: whether the committed results hold on this machine, in five minutes.
# make test: the test suite, style and types among it.
# make test-quick: the part of it to run at every change.  All install what they need.
# make test-cluster: the pipeline on a Slurm of its own.
# make campaign: what becomes of records and commands when things go wrong, see docs/faults.md.
# make clean: deletes all results but the committed ones, and the files of tools.
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := torch,gpu,dynet,tensorflow,jax,torchfold,geometric,plots,pipeline,test,dev
# The pipeline's options, e.g. make all CONFIG="scale=paper threads=2"
CONFIG ?=
# More for Snakemake, e.g. make all SNAKEMAKE=--quiet. Not its --config: of two, it takes the last.
SNAKEMAKE ?=
# Installs TensorFlow and JAX with CUDA, if this machine can measure them.
WITH_GPU_PEERS = $(if $(OFFLINE)$(findstring device=cpu,$(CONFIG)),,-$(BIN)/python -m scripts.gpu_peers if-usable)

# One process per CPU, up to 8; all tests of a file run in one process, so that fixtures run once.
PROCESSES ?= $(shell n=$$(nproc); echo $$((n < 8 ? n : 8)))
# make test CPU=avx2: as on a CPU without AVX-512, on any x86-64 with AVX2. A CPU that the shell
# exports has no effect.
CPU :=
CPUS := $(patsubst tests/support/%_cpu.py,%,$(wildcard tests/support/*_cpu.py))
ifneq ($(filter-out $(CPUS),$(CPU)),)
$(error CPU=$(CPU) is unknown; choose one of: $(CPUS), or leave it out for this CPU)
endif
# No variable of the shell chooses the kernels of OpenBLAS. Hundreds of processes import this project,
# and each would compile its source again without the files of __pycache__.
PYTEST := env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest $(if $(CPU),-p tests.support.$(CPU)_cpu) -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# A folder of wheels to install from, where there is no network; see make wheelhouse.
OFFLINE ?=
# That machine's Python, and a file with what pip freeze says there.
BOX_PYTHON ?= 3.12
BOX_PACKAGES ?=
# A file of packages with their hashes, to install no others; make hashes HASHES=FILE writes it and
# FILE.build, which has the packages that build the others.
HASHES ?=
MINUTES ?= 9
# An index of PyTorch's, if its build on the registry does not fit: cpu (without CUDA's libraries),
# cu126 (a driver for CUDA 12), or a URL. Its newest PyTorch is installed, in place of another.
TORCH_INDEX ?=
TORCH_URL = $(if $(findstring ://,$(TORCH_INDEX)),,https://download.pytorch.org/whl/)$(TORCH_INDEX)

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
ITSELF := --no-deps --no-build-isolation --editable .
WITH_TORCH := nvidia-[cn]|triton|cuda-
# Lines NAME==VERSION, the first of each name, without the local part of a version (+cu128).
ONE_OF_EACH := sed -E '/^-|^\#|@/d; s/[+ ;].*//' | awk -F= '{ name = tolower($$1); gsub("_", "-", name) } !seen[name]++'

.PHONY: help all try medium install test test-quick test-cluster campaign verify-reference dynet-native dynet-cuda gpu-peers hashes wheelhouse constraints gpu clean

# Lists the targets above; it is the first target, so that make alone starts nothing.
help:
	@sed -n 's/^# \(make [a-z-]*:\)/\1/p' $(MAKEFILE)

all: install
	$(WITH_GPU_PEERS)
	$(BIN)/snakemake all $(if $(CONFIG),--config $(CONFIG)) $(SNAKEMAKE)

# Three systems on one workload: a table, a picture, and what they say.
try: install
	$(if $(CONFIG),$(error make try takes no CONFIG; say make all CONFIG="$(CONFIG)" instead))
	$(BIN)/python -m dynbatch.harness.commands.first_look

# Papers' shapes with fewer points: what is worth looking at.
medium: install
	$(WITH_GPU_PEERS)
	$(if $(findstring --config,$(SNAKEMAKE)),$(error SNAKEMAKE has --config, which would replace scale=medium; say CONFIG="key=value" instead))
	$(BIN)/snakemake all --config scale=medium $(CONFIG) $(SNAKEMAKE)

# One at a time: another make in this directory waits, and then finds everything installed.
MAKEFILE := $(firstword $(MAKEFILE_LIST))
install:
	@flock -n $(MAKEFILE) true || echo "waiting for another make, which installs packages"
	@flock $(MAKEFILE) $(MAKE) -f $(MAKEFILE) --no-print-directory installed

.PHONY: installed
installed: $(VENV)/.installed
	@:

# Another TORCH_INDEX than that of the last installation installs again.
ifneq ($(TORCH_INDEX),$(if $(TORCH_INDEX),$(shell cat $(VENV)/.torch_index 2> /dev/null)))
.PHONY: $(VENV)/.installed
endif
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	rm -f $(VENV)/.torch_index $@
	@echo "installing packages into $(VENV), which takes one to five minutes"
ifdef OFFLINE
	# The packages of $(PYTHON) are seen behind those in the folder. It may be in an environment
	# itself, whose packages venv --system-site-packages would not show.
	$(PYTHON) -c 'import site; print(*site.getsitepackages(), sep="\n")' > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/of_the_machine.pth"
	$(PIP) install --no-index --no-deps $(OFFLINE)/*.whl
	$(PIP) install --no-index $(ITSELF)
	-$(BIN)/python -m pip check
else ifdef HASHES
	$(PIP) install --require-hashes -r $(HASHES).build
	$(PIP) install --require-hashes --no-build-isolation -r $(HASHES)
	$(PIP) install $(ITSELF)
else ifneq ($(TORCH_INDEX),)
	$(PIP) freeze | sed -nE 's/^(($(WITH_TORCH))[^=]*|torch)==.*/\1/p' | xargs -r $(PIP) uninstall --yes
	$(PIP) install --index-url '$(TORCH_URL)' torch
	grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt
	$(PIP) install --use-pep517 -c $(VENV)/constraints.txt --editable ".[$(EXTRAS)]"
	echo '$(TORCH_INDEX)' > $(VENV)/.torch_index
else
	$(PIP) install --use-pep517 -c constraints.txt --editable ".[$(EXTRAS)]"
endif
	$(BIN)/python -m dynbatch.harness.machine.torch_device
	$(BIN)/python -m dynbatch.harness.commands.compile_ahead
	touch $@

# Versions and hashes of what make install takes, for make install HASHES=FILE.
hashes:
	$(if $(HASHES),,$(error say HASHES=FILE))
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install pip-tools
	printf 'setuptools>=77\nwheel\n' | $(BIN)/pip-compile $(COMPILE) -c constraints.txt -o $(HASHES).build -
	$(BIN)/pip-compile $(COMPILE) -c constraints.txt -c $(HASHES).build --extra $(EXTRAS) -o $(HASHES) pyproject.toml
COMPILE := --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links

# The versions that the tests ran with. CUDA's packages are left out, so that they also fit a machine
# with a GPU.
constraints:
	$(BIN)/python -m pip freeze --exclude-editable > $(VENV)/freeze.txt
	(echo "# Written by make constraints: the versions that the tests ran with."; cat $(VENV)/freeze.txt | $(ONE_OF_EACH) | grep -vE '^($(WITH_TORCH)|setuptools)') > constraints.txt

# Property tests draw the same examples every time; new ones: pytest --hypothesis-profile=explore
test: install
	$(PYTEST) -m "not cluster and not campaign"

# What proves the most in a minute: every sabotage is caught, schedules of all policies are valid and
# not below the bound, and what records, trials, layers and names promise.
QUICK := $(wildcard tests/test_*.py) $(wildcard tests/docs/test_plain_*.py) $(addprefix tests/,contracts \
	measuring/test_sabotage.py::test_sabotage_is_caught models policies/test_bound.py \
	policies/test_policies.py records/test_cross_check.py \
	records/test_fingerprint.py records/test_record.py records/test_reuse.py records/test_tidy.py \
	terminal trials values vertex/test_folding.py vertex/test_stages.py vertex/test_tracing.py)
test-quick: install
	$(PYTEST) -m "not slow and not dynet and not gpu" $(QUICK)

# Whether the committed results hold on this machine: ten workloads in about five minutes.
verify-reference: install
	$(BIN)/python -m scripts.verify_reference

# The pipeline on a Slurm of its own, which it starts and stops: as root, where Debian's munge,
# slurmctld, slurmd and slurm-client are installed.
test-cluster:
	$(MAKE) --always-make install EXTRAS=$(EXTRAS),cluster
	$(BIN)/python -m pytest -m cluster

# Faults injected into commands, their disks, caches and inputs (docs/faults.md): an hour or more on 2
# cores. CAMPAIGN="-k kills": one file of it.
CAMPAIGN ?=
campaign: install
	$(BIN)/python -m pytest tests/campaign --hypothesis-profile=campaign $(CAMPAIGN)

# Real DyNet built from source, which headline ratios are taken against; needs a C++ compiler. A second
# build waits for the first one, whose directory it would delete.
DYNET_BUILD := scripts/build_dynet_native.sh
dynet-native: install
	PYTHON=$(BIN)/python flock $(DYNET_BUILD) bash $(DYNET_BUILD)

# The same for NVIDIA GPUs (sm_80, sm_90); needs nvcc of CUDA 13, but no GPU.
dynet-cuda: install
	DEVICE=cuda PYTHON=$(BIN)/python flock $(DYNET_BUILD) bash $(DYNET_BUILD)

# TensorFlow and JAX with CUDA, each in an environment of its own, in which their trials on CUDA run.
gpu-peers: install
	$(BIN)/python -m scripts.gpu_peers

# Wheels for a machine with a GPU and without a network, for make install OFFLINE=wheelhouse
# there. PyTorch, Triton, NumPy and all of BOX_PACKAGES are its own; oneDNN is left out for its size:
# OpenBLAS does the CPU's products.
NEEDED := import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *(line for extra in ("plots", "pipeline", "test") for line in p["optional-dependencies"][extra]), "setuptools>=77", "wheel", sep="\n")
FOR_BOX := --only-binary :all: --python-version $(BOX_PYTHON) --implementation cp $(patsubst %,--platform manylinux%_x86_64,_2_28 _2_17 2014)
wheelhouse: install
	rm -rf wheelhouse && mkdir wheelhouse
	$(BIN)/python -c '$(NEEDED)' | grep -vE '^(onednn|scipy-openblas)' > wheelhouse/needed.txt
	cat $(BOX_PACKAGES) constraints.txt | $(ONE_OF_EACH) > wheelhouse/pinned.txt
	$(PIP) wheel --no-deps -w wheelhouse -c wheelhouse/pinned.txt antlr4-python3-runtime connection-pool
	$(PIP) download -d wheelhouse --find-links wheelhouse $(FOR_BOX) -c wheelhouse/pinned.txt -r wheelhouse/needed.txt
	(echo numpy; echo torch; echo triton; cat /dev/null $(BOX_PACKAGES) | $(ONE_OF_EACH)) | sed 's/==/-/; s/-\([a-z]\)/_\1/g' | while read wheel; do find wheelhouse -iname "$$wheel-*" -delete; done
	du -sh wheelhouse

# All checks and measurements on a GPU, in steps: repeat the command until none is left. The file
# STEP.done has the exit code of a step; without the file, the step runs again.
GPU := results/gpu
SHARDS := 1 2 3 4 5 6
GPU_STEPS := doctor races $(SHARDS:%=tests_%) ceilings headlines cavs claims profile
AT_PAPER_SCALE = --quiet rules --config scale=paper device=cuda budget=$(MINUTES)m
$(GPU)/doctor.done: STEP = $(BIN)/python -m dynbatch.harness.commands.doctor
# Shared memory is read only after the barrier that follows its writes: compute-sanitizer of the CUDA
# toolkit reports where that is not so. The lattice's kinds follow each other without one in a phase.
$(GPU)/races.done: STEP = timeout $(shell expr $(MINUTES) - 1)m compute-sanitizer --tool racecheck --error-exitcode 1 --target-processes all $(BIN)/python -m pytest -q -m gpu -k 'generated_kernels and lattice_lstm' tests/engine/test_gpu.py
$(GPU)/tests_%.done: STEP = $(BIN)/python -m pytest -q -m gpu -n 8 --dist worksteal --shard $(*:tests_%=%)/$(words $(SHARDS)) tests/engine tests/systems
$(GPU)/ceilings.done: STEP = $(BIN)/python -m scripts.gpu_device ceilings cuda
$(GPU)/headlines.done: STEP = $(BIN)/snakemake draw_answers $(AT_PAPER_SCALE)
$(GPU)/cavs.done: STEP = $(BIN)/snakemake $(patsubst conf/experiment/%.yaml,draw_%,$(wildcard conf/experiment/cavs_*.yaml)) $(AT_PAPER_SCALE)
$(GPU)/claims.done: STEP = $(BIN)/snakemake claims $(AT_PAPER_SCALE)
$(GPU)/profile.done: STEP = $(BIN)/python -m scripts.gpu_device profile cuda

$(GPU_STEPS:%=$(GPU)/%.done): $(GPU)/%.done:
	mkdir -p $(GPU)
	$(STEP) > $(GPU)/$*.txt 2>&1; code=$$?; grep -q 'left for the next run' $(GPU)/$*.txt || echo $$code > $@

gpu: install
	-timeout $(MINUTES)m $(MAKE) --no-print-directory $(GPU_STEPS:%=$(GPU)/%.done)
	cd results && tar -czf gpu.tar.gz $$(ls -d gpu raw tables figures artifacts measured 2> /dev/null)
	cd $(GPU) && ! for step in $(GPU_STEPS); do echo "$$step: $$(cat $$step.done 2> /dev/null || echo not done)"; done | tee status.txt | grep -v ': 0$$'

# Deletes results, except the committed ones in results/reference, and the files of tools, except .venv.
clean:
	find results -mindepth 1 -maxdepth 1 ! -name reference ! -name .gitkeep -exec rm -r {} +
	rm -rf .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
