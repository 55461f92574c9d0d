# The papers' experiments, from trials to one report:  snakemake all [--config scale=smoke|medium|paper]
#
# --config keys: scale, device (cpu, cuda), threads (per trial), data_root, results_dir, conf_dir;
# nodes={...} of a profile (profiles/slurm): nodes of a cluster that measure instead of this machine;
# budget=45m: time limit, headlines first; the next run measures the rest;
# records=PLACE draws records of other machines (bench-collect --pack), without measuring.
from snakemake.utils import min_version

min_version("9.18")

container: "docker://python:3.11"

import os
import sys
from pathlib import Path

from harness.records.store import kinds_in, packed_files
from harness.planning.requests import check_keys, ends_in_one_line, no_artefact

with ends_in_one_line():
    check_keys(config, os.environ)
# Kinds of machines, if `records` was packed by bench-collect --merge.
KINDS = kinds_in(Path(config["records"])) if config.get("records") else []

if workflow.remote_exec: # on a cluster node, whose work the head node has planned
    include: "workflow/rules/on_node.smk"
    include: "workflow/rules/jobs.smk"
    include: "workflow/rules/counts_on_nodes.smk"
elif KINDS:
    include: "workflow/rules/kinds.smk"
else:
    include: "workflow/rules/one_kind.smk"
