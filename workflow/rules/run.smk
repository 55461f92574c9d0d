# Run that measures and draws, on this machine or as head node of a cluster, and its targets.
with exit_on_error(): # for errors in --config or conf/
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

# Without trials, for example if all experiments count batches, there is no table of records.
TRIALS_CSV = [f"{RESULTS}/records.csv"] if any(PLANS.values()) else []

# Every table and figure, and the report.
rule draw_all:
    input:
        REPORT,
        REMOVED,
        to_measure(),

# The three tables that answer most questions.
rule tables:
    input:
        [f"{RESULTS}/{file}" for name in TABLES if name in PLANS for file in DECLARATIONS[name].files],
        [file for name in TABLES if name in PLANS for file in to_measure(name)],

# Missing measurements of claims that this scale and device can decide, and the table of all claims.
rule claims:
    input:
        [f"{RESULTS}/{file}" for file in DECLARATIONS[CLAIMS].files] if CLAIMS in PLANS else [],
        to_measure(CLAIMS),
