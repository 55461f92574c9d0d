# Batch counts: exact, so once; beside each other, as many as there are cores, but for those that are
# timed, and never beside a trial. bench-schedule keeps a record of each count below raw/ and counts only
# what has no good one; those of a sweep are gathered here.
rule counts:
    output:
        f"{RESULTS}/counts/{{sweep}}.json",
    log:
        f"{RESULTS}/logs/counts/{{sweep}}.log",
    params:
        settings=lambda wildcards: SWEEPS[wildcards.sweep].overrides,
        source=lambda wildcards: sweep_sha256(SWEEPS[wildcards.sweep], COMPOSER, SOURCES),
        bench_schedule=[*PYTHON, "harness.commands.schedule"],
        places=COUNT_PLACES,
    threads: lambda wildcards: workflow.cores if SWEEPS[wildcards.sweep].is_timed else 1
    message:
        "count {wildcards.sweep}"
    shell:
        "{params.bench_schedule:q} {params.settings:q} {params.places:q} out={output:q} &> {log:q}"
        " || [ $? -eq 3 ]" # a policy that failed has a row that says so, and the others' are there
