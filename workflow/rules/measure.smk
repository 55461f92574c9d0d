# One fresh process per trial and round, alone on the machine.
#
# update(): Snakemake does not delete a record before a rerun; what measures keeps one that is valid and
# sets an outdated one aside. flock: after a kill, a trial that still runs ends before the next begins.
rule trial:
    output:
        update(str(path_of(RESULTS, "{trial}", "{round}"))),
    log:
        f"{RESULTS}/logs/{{trial}}/r{{round}}.log",
    params:
        spec=lambda wildcards: spec_of_trial(wildcards.trial),
        source=lambda wildcards: source_of_trial(wildcards.trial),
        measure=f"flock {RESULTS}/.measuring {PYTHON} harness.commands.measure",
        worker_log=lambda wildcards: f"{RESULTS}/logs/{wildcards.trial}.r{wildcards.round}.log",
    threads: workflow.cores # it owns the machine: nothing else runs beside it
    # Every trial's first round, then every trial's second; in each the systems of a point as drawn.
    priority: lambda wildcards: len(PLACES) - PLACES.get((wildcards.trial, int(wildcards.round)), len(PLACES))
    message:
        "measure {wildcards.trial}, round {wildcards.round}"
    shell:
        "{params.measure} {params.spec:q} --round {wildcards.round} --out {output:q}"
        " --log {params.worker_log:q} 3>&2 &> {log:q}" # 3: what is said past the log

# Batch counts: exact, so once; alone on the machine, since learning is timed. bench-schedule keeps a
# record of each count below raw/ and counts only what has no good one; those of a sweep are gathered here.
rule counts:
    output:
        f"{RESULTS}/counts/{{sweep}}.json",
    log:
        f"{RESULTS}/logs/counts/{{sweep}}.log",
    params:
        settings=lambda wildcards: SWEEPS[wildcards.sweep].overrides,
        source=lambda wildcards: sweep_sha256(SWEEPS[wildcards.sweep], COMPOSER, SOURCES),
        bench_schedule=f"flock {RESULTS}/.measuring {PYTHON} harness.commands.schedule",
        data=f"data_root={CHOICES.data_root}",
        records=f"records={RESULTS}/raw/counts",
    threads: workflow.cores
    message:
        "count {wildcards.sweep}"
    shell:
        "{params.bench_schedule} {params.settings:q} {params.data:q} {params.records:q} bad_data=record"
        " out={output:q} &> {log}"
