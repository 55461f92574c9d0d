# A job on a node of a cluster. Nothing is planned here: Snakemake starts twice for each job.
import sys
from pathlib import Path

from harness.planning.nodes import nodes_of
from harness.planning.orders import order_path
from harness.records.measured import sitting_path

RESULTS = Path(config.get("results_dir") or "results")
PYTHON = [sys.executable, "-m"]
N_CPUS = nodes_of(config).n_cpus
# What a job asks for, and what makes it out of date, only its head node needs to know.
SITTING_JOB = COUNT_JOB = {}
sources_of = source_of_sweep = lambda wildcards: ""
priority_of = lambda wildcards: 0
count_threads = lambda wildcards: 1

wildcard_constraints:
    sitting="[^/]+",
    round="[0-9]+",
    sweep="[^/]+",
