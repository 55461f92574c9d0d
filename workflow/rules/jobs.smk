# Jobs that measure: one at a time on a machine, with a fresh process for each trial.
#
# Records are not declared as output, because Snakemake would delete them after a failure. The job reuses
# valid records and moves outdated ones away. It waits for a lock: if a run was killed, a trial that still
# runs ends before the next one starts.
rule measure:
    output:
        str(build_done_path(RESULTS, "{job}")),
    log:
        f"{RESULTS}/logs/measured/{{job}}.log",
    params:
        measure=[*PYTHON, "dynbatch.harness.commands.measure"],
        order=str(build_order_path(RESULTS, "{job}")),
    threads: N_CPUS
    resources:
        **MEASURE_JOB,
    priority: 1 # before batch counts
    message:
        "measure {wildcards.job}"
    shell:
        "{params.measure:q} --done={output:q} -- {params.order:q} 3>&2 &> {log:q}" # 3: messages outside the log
