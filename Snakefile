# The papers' artefacts, from trials to one report:  snakemake all [--config scale=smoke|paper]
#
# --config keys: scale, device (cpu, cuda), threads (per trial), data_root, results_dir, conf_dir.
from snakemake.utils import min_version

min_version("9.18")

container: "docker://python:3.11"

include: "workflow/rules/common.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/show.smk"

rule all:
    input:
        f"{RESULTS}/report.html",
        f"{RESULTS}/records.csv",
