# What measures: a job after the other, each alone on its machine, one fresh process a trial.
#
# Records are no output: what measures keeps those that are valid and sets outdated ones aside, and no failed
# job takes one along. Each waits for its turn: after a kill, a trial that still runs ends before the next begins.
rule measure:
    output:
        str(done_path(RESULTS, "{job}")),
    log:
        f"{RESULTS}/logs/measured/{{job}}.log",
    params:
        measure=[*PYTHON, "harness.commands.measure"],
        order=str(order_path(RESULTS, "{job}")),
    threads: N_CPUS
    resources:
        **MEASURE_JOB,
    priority: 1 # before what is counted
    message:
        "measure {wildcards.job}"
    shell:
        "{params.measure:q} {params.order:q} --done={output:q} 3>&2 &> {log:q}" # 3: what is said past the log
