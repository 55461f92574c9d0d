# The papers' artefacts, from trials to one report:  snakemake all [--config scale=smoke|medium|paper]
#
# --config keys: scale, device (cpu, cuda), threads (per trial), data_root, results_dir, conf_dir;
# nodes={...} of a profile (profiles/slurm): what measures, where that is not this machine;
# budget=45m measures what matters most and stops in time, the next run goes on;
# records=PLACE draws what was measured elsewhere (bench-collect --pack), and measures nothing.
from snakemake.utils import min_version

min_version("9.18")

container: "docker://python:3.11"

from harness.planning.refusal import ends_in_one_line

if workflow.remote_exec: # on a node of a cluster: what is to be done there, its head node planned
    include: "workflow/rules/on_node.smk"
    include: "workflow/rules/cluster_jobs.smk"
else:
    with ends_in_one_line(): # whatever of --config or conf/ is wrong
        include: "workflow/rules/common.smk"
        if NODES:
            include: "workflow/rules/on_head.smk"
            include: "workflow/rules/cluster_jobs.smk"
        else:
            include: "workflow/rules/measure.smk"
        include: "workflow/rules/show.smk"

    # Where all experiments count batches there is no trial, and so no table of them.
    TRIALS_CSV = [f"{RESULTS}/records.csv"] if any(PLANS.values()) else []

    rule all:
        default_target: True
        input:
            f"{RESULTS}/report.html",
            TRIALS_CSV,
            [] if PLACE else records_of(PLANS), # also where what is drawn of them is there

    # Every table and figure, without the report.
    rule draw_all:
        input:
            [f"{RESULTS}/{file}" for name in PLANS for file in FILES[name]],
