# The papers' artefacts, from trials to one report:  snakemake all [--config scale=smoke|medium|paper]
#
# --config keys: scale, device (cpu, cuda), threads (per trial), data_root, results_dir, conf_dir;
# nodes={...} of a profile (profiles/slurm): what measures, where that is not this machine;
# budget=45m measures what matters most and stops in time, the next run goes on;
# records=PLACE draws what was measured elsewhere (bench-collect --pack), and measures nothing.
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
# Of several kinds of machines, whose records bench-collect --merge packed; else none.
KINDS = kinds_in(Path(config["records"])) if config.get("records") else []

if workflow.remote_exec: # on a node of a cluster: what is to be done there, its head node planned
    include: "workflow/rules/on_node.smk"
    include: "workflow/rules/jobs.smk"
    include: "workflow/rules/counts_on_nodes.smk"
elif KINDS:
    include: "workflow/rules/kinds.smk"
else:
    include: "workflow/rules/one_kind.smk"
