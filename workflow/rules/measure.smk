# A round of the trials of one point, one fresh process after the other, alone on the machine.
#
# Records are no output: what measures keeps those that are valid and sets outdated ones aside, and no failed
# job takes one along. Each waits for its turn: after a kill, a sitting that still runs ends before the next begins.
rule sitting:
    output:
        str(sitting_path(RESULTS, "{sitting}", "{round}")),
    log:
        f"{RESULTS}/logs/sittings/{{sitting}}/{{round}}.log",
    params:
        specs=specs_of,
        sources=sources_of,
        measure=[*PYTHON, "harness.commands.measure"],
        results=f"--results-dir={RESULTS}",
    threads: workflow.cores # it owns the machine: nothing else runs beside it
    priority: lambda wildcards: len(PLACES) - PLACES.get((wildcards.sitting, wildcards.round), len(PLACES))
    message:
        "measure {wildcards.sitting}, round {wildcards.round}"
    shell:
        "{params.measure:q} {params.specs:q} --round {wildcards.round} {params.results:q} --done={output:q}"
        " 3>&2 &> {log:q}" # 3: what is said past the log

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
