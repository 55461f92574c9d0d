# One kind of machine measures, or its records are drawn: what there is to do, and what comes out.
with ends_in_one_line(): # whatever of --config or conf/ is wrong
    include: "common.smk"
    if NODES:
        include: "on_head.smk"
        include: "counts_on_nodes.smk"
    else:
        N_CPUS = workflow.cores
        MEASURE_JOB = {}
        include: "counts.smk"
    include: "jobs.smk"
    include: "show.smk"

# If all experiments count batches, there is no trial, and so no table of records.
TRIALS_CSV = [f"{RESULTS}/records.csv"] if any(PLANS.values()) else []

rule all:
    default_target: True
    input:
        f"{RESULTS}/report.html",
        TRIALS_CSV,
        to_measure(), # even if all that shows it exists
    message: # instead of the names of all records
        f"all is drawn: {RESULTS}/report.html"

# Every table and figure, and the report.
rule draw_all:
    input:
        f"{RESULTS}/report.html",
        to_measure(),

# The three tables that answer most questions.
rule tables:
    input:
        [f"{RESULTS}/{file}" for name in TABLES for file in DECLARATIONS[name].files],
        [file for name in TABLES for file in to_measure(name)],

# An unknown name: Snakemake's own message lists no choices.
rule no_artefact:
    input:
        refused,
    output:
        "draw_{name}",
    wildcard_constraints:
        name="[^/.]+",
