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

from harness.records.store import list_machine_kinds, find_packed_files
from harness.planning.requests import check_keys, exit_on_error, make_target_error

with exit_on_error():
    check_keys(config, os.environ)
# Kinds of machines, if `records` was packed by bench-collect --merge.
KINDS = list_machine_kinds(Path(config["records"])) if config.get("records") else []

if workflow.remote_exec: # on a cluster node, whose work the head node has planned
    include: "workflow/rules/on_node.smk"
    include: "workflow/rules/jobs.smk"
    include: "workflow/rules/counts_on_nodes.smk"
elif KINDS:
    include: "workflow/rules/kinds.smk"
else:
    include: "workflow/rules/one_kind.smk"
