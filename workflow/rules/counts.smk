# Batch counts: exact, so they are counted once. Counts that are not timed run in parallel on all cores,
# but never at the same time as a trial. bench-schedule writes a record of each count to raw/, and counts
# only if there is no valid record; this rule collects the rows of a sweep.
rule counts:
    output:
        f"{RESULTS}/counts/{{sweep}}.json",
    log:
        f"{RESULTS}/logs/counts/{{sweep}}.log",
    params:
        settings=lambda wildcards: SWEEPS[wildcards.sweep].overrides,
        source=hash_sweep_code,
        bench_schedule=[*PYTHON, "dynbatch.harness.commands.schedule"],
        places=COUNT_PLACES,
    threads: count_threads
    message:
        "count {wildcards.sweep}"
    shell:
        "{params.bench_schedule:q} {params.settings:q} {params.places:q} out={output:q} &> {log:q}"
        " || [ $? -eq 3 ]" # the row of a failed policy has its status; the others are complete
