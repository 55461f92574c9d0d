# Cluster run on its head node: resources of jobs, and preparations before the first job.
from dynbatch.harness.planning.jobs import COUNTING_MIN, estimate_runtime_min
from dynbatch.harness.planning.locks import block_runs
from dynbatch.harness.planning.slurm import cancel, check_slurm, list_jobs, check_idle_nodes
from dynbatch.harness.terminal.status import forget_all

check_slurm(NODES.partition)

N_CPUS = NODES.n_cpus
# A job that measures has its node exclusively.
MEASURE_JOB = {
    **NODES.resources,
    "mem_mb": NODES.memory_mib,
    "slurm_extra": "--exclusive",
    "runtime": lambda wildcards: estimate_runtime_min(
        TRIALS[step.name].spec for step in JOBS[wildcards.job].steps
    ),
}
COUNT_JOB = {
    **NODES.resources,
    "mem_mb": NODES.memory_mib // NODES.n_cpus,
    "slurm_extra": lambda wildcards: "--exclusive" if SWEEPS[wildcards.sweep].is_timed else "",
    "runtime": COUNTING_MIN,
}


def prepare_nodes():
    """Cancel leftover jobs of an earlier run, check the nodes, and write the job specs of counts."""
    with exit_on_error():
        with block_runs(RESULTS) as is_alone:
            if is_alone:
                end_lost_jobs()
        check_idle_nodes(NODES, RESULTS, notify)
        write_orders_of_counts()


def end_lost_jobs():
    """Cancel the jobs of a killed Snakemake, which would measure the same trials as this run."""
    forget_all(RESULTS)
    # Counts are not canceled, because they may be of another results directory.
    ours = {f"rule_measure_wildcards_{name}" for name in JOBS}
    lost = [job for job, comment in list_jobs(Path.cwd()).items() if comment in ours]
    if lost:
        notify(f"canceling {len(lost)} jobs of an earlier run: {', '.join(lost)}")
    cancel(lost)


def write_orders_of_counts():
    """Write the job specs of batch counts."""
    code = compute_code_version()
    for name, sweep in SWEEPS.items():
        words = (*sweep.overrides, *COUNT_PLACES, f"out={RESULTS}/counts/{name}.json")
        order = Order(RESULTS, NODES, code, count=words, shares_machine=not sweep.is_timed)
        order.write(build_order_path(RESULTS, name))
