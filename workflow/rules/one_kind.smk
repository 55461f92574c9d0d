# One kind of machine measures, or its records are drawn: what there is to do, and what comes out.
with ends_in_one_line(): # whatever of --config or conf/ is wrong
    include: "common.smk"
    if NODES:
        include: "on_head.smk"
        include: "cluster_jobs.smk"
    else:
        include: "measure.smk"
    include: "show.smk"

# Where all experiments count batches there is no trial, and so no table of them.
TRIALS_CSV = [f"{RESULTS}/records.csv"] if any(PLANS.values()) else []

rule all:
    default_target: True
    input:
        f"{RESULTS}/report.html",
        TRIALS_CSV,
        [] if PLACE else records_of(PLANS), # also where what is drawn of them is there
    message: # in place of the names of all records
        f"all is drawn: {RESULTS}/report.html"

# Every table and figure, without the report.
rule draw_all:
    input:
        [f"{RESULTS}/{file}" for name in PLANS for file in FILES[name]],

# What is no artefact: in place of Snakemake's words, which name no choices.
rule no_artefact:
    input:
        refused,
    output:
        "draw_{name}",
    wildcard_constraints:
        name="[^/.]+",
