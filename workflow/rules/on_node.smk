# A job on a node of a cluster. Nothing is planned here: Snakemake starts twice for each job.
import sys
from pathlib import Path

from harness.planning.nodes import nodes_of
from harness.planning.orders import done_path, order_path

RESULTS = Path(config.get("results_dir") or "results")
PYTHON = [sys.executable, "-m"]
N_CPUS = nodes_of(config).n_cpus
# What a job asks for, and what makes it out of date, only its head node needs to know.
MEASURE_JOB = COUNT_JOB = {}
source_of_sweep = lambda wildcards: ""
count_threads = lambda wildcards: 1

wildcard_constraints:
    job="[^/]+",
    sweep="[^/]+",
