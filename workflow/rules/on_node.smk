# Job on a cluster node. Nothing is planned here, because Snakemake starts twice for each job.
from dynbatch.harness.planning.nodes import read_nodes
from dynbatch.harness.planning.job_specs import build_done_path, build_order_path

N_CPUS = read_nodes(config).n_cpus
# Only the head node needs resources of jobs, and the hashes that show if they are out of date.
MEASURE_JOB = COUNT_JOB = {}
hash_sweep_code = lambda wildcards: ""
count_threads = lambda wildcards: 1
