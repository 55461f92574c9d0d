# What there is to do, worked out once: the grids of conf/experiment on this machine.
import functools
import os
import sys
from pathlib import Path

from harness.contracts.extras import check_extra
from harness.records.stored import packed_files
from harness.planning.admit import admit
from harness.planning.artefacts import (
    choices_from,
    measuring_order,
    plan_artefact,
    plan_counts,
    sweep_sha256,
)
from harness.planning.compose import Composer
from harness.planning.blocks import blocks_of
from harness.planning.budget import Step
from harness.planning.grid import expand, experiment_names
from harness.planning.nodes import check_executor, nodes_of
from harness.planning.pending import pending_of
from harness.planning.pipeline_places import check_places, setting, word
from harness.planning.run_plan import FILE, VARIABLE
from harness.planning.running import begin_run
from harness.planning.sittings import keep_true, sittings_of
from harness.planning.waking import let_sleep
from harness.records.measured import sitting_path
from harness.trials.sources import SourceHashes, hash_contents
from harness.values.places import CONF_DIR
from plots.numbers.drawable import drawable
from plots.numbers.presentation import read_presentation

check_places(config, os.environ)
check_extra("plots") # not after an hour of measuring
# With records=PLACE nothing is measured: what was measured elsewhere is drawn, whatever is here.
PLACE = config.get("records")
DRAWABLE = drawable(config, os.environ) if PLACE else None
NODES = None if PLACE else nodes_of(config) # what measures; None: this machine
CHOICES = DRAWABLE.choices if DRAWABLE else choices_from(config, os.environ)
RESULTS = CHOICES.results_dir
COMPOSER = Composer(CHOICES.conf_dir)
if DRAWABLE:
    print(*DRAWABLE.lines, sep="\n", file=sys.stderr)
    PLANS = {name: part.trials for name, part in DRAWABLE.drawn.items()}
    COUNTS = {name: part.sweeps for name, part in DRAWABLE.drawn.items()}
else:
    PLANS = {
        name: plan_artefact(name, CHOICES, COMPOSER)
        for name in experiment_names(CHOICES.conf_dir)
    }
    COUNTS = {name: plan_counts(name, CHOICES) for name in PLANS}
TRIALS = {
    trial.trial_id: trial for trial in measuring_order(t for plan in PLANS.values() for t in plan)
}
if not DRAWABLE:
    for planned in TRIALS.values():
        admit(planned.spec, NODES)
# Where a budget is short, headlines come first.
HEADLINES = {name for name in PLANS if read_presentation(name, CHOICES.conf_dir).compares_peers}
SOURCES = SourceHashes()
BUDGET = config.get("budget")
CPU = NODES and (NODES.cpu or "") # whose records tell how long trials take
PENDING = (
    None if DRAWABLE
    else pending_of(CHOICES, PLANS, COUNTS, HEADLINES, SOURCES, BUDGET, CPU)
)
# In the order of measuring: every trial's first round, then every trial's second.
SITTINGS = () if DRAWABLE else sittings_of(PLANS)
if PENDING and PENDING.budget_s is not None:
    SITTINGS = sorted(SITTINGS, key=lambda one: (one.round, not one.artefacts & HEADLINES))
if NODES: # a job there takes more, so that what is compared is measured on one node
    SITTINGS = blocks_of(SITTINGS, NODES.block_s)
if PENDING:
    keep_true(SITTINGS, RESULTS, PENDING.is_lacking)
SITTING = {(one.name, str(one.round)): one for one in SITTINGS}
PLACES = {key: place for place, key in enumerate(SITTING)}
# Read by what measures: until when, and what else there is to do.
RUN_PLAN = RESULTS / FILE

def steps_of(jobs):
    """What jobs measure and count."""
    steps = []
    for job in jobs:
        if job.rule.name == "sitting":
            sitting = SITTING[job.wildcards.sitting, job.wildcards.round]
            steps += filter(PENDING.is_measured, sitting.steps)
        elif job.rule.name == "counts":
            steps.append(Step(job.wildcards.sweep, 0))
    return steps


RUNNING = [] # what says so, as long as this process lives

onstart:
    let_sleep(workflow)
    if PENDING:
        check_executor(NODES, workflow.executor_plugin.name)
        if NODES:
            prepare_nodes()
        RUNNING.append(begin_run(RESULTS))
        jobs = list(workflow.dag.needrun_jobs())
        n_drawn = sum(job.rule.name.startswith("draw_") for job in jobs)
        print(PENDING.words(steps_of(jobs), n_drawn), file=sys.stderr)
        PENDING.put_outdated_aside()
        PENDING.run_plan(steps_of(jobs), n_drawn).write(RUN_PLAN)
        os.environ[VARIABLE] = str(RUN_PLAN) # not before: the plan of an earlier run is over

def refused(wildcards):
    """No input: whoever asks for what is no artefact is told so."""
    with ends_in_one_line():
        raise no_artefact(wildcards.name, PLANS)

@functools.cache # every round asks
def spec_text(trial_id):
    return TRIALS[trial_id].as_json(CHOICES.conf_dir)

@functools.cache
def source_of(trial_id):
    return SOURCES.of(TRIALS[trial_id].spec)

def specs_of(wildcards):
    """What a sitting measures."""
    return [spec_text(step.name) for step in SITTING[wildcards.sitting, wildcards.round].steps]

def sources_of(wildcards):
    """What measures it: edited, it is measured again."""
    steps = SITTING[wildcards.sitting, wildcards.round].steps
    return sorted({source_of(step.name) for step in steps})

# What a count is told beside its settings.
COUNT_PLACES = [
    setting("data_root", CHOICES.data_root), f"records={RESULTS}/raw/counts", "bad_data=record",
]
SWEEPS = {sweep.sweep_id: sweep for sweeps in COUNTS.values() for sweep in sweeps}
FILES = {name: read_presentation(name, CHOICES.conf_dir).files for name in PLANS}
# Editing what draws draws again; editing what is measured measures again (see the rule sitting).
DRAWING_SHA256 = hash_contents(
    {path.name: path for path in Path(workflow.basedir, "plots").rglob("*")
     if path.suffix in (".py", ".yaml", ".html", ".css", ".mplstyle")}
)
# What shows the code of models is drawn again once that changes.
CODE_SHA256 = hash_contents(
    {path.as_posix(): path for folder in ("harness/models", "systems")
     for path in Path(workflow.basedir, folder).rglob("*.py")}
)
READS_CODE = {name for name in PLANS if read_presentation(name, CHOICES.conf_dir).reads_code}
# Commands are lists of words, which rules quote for the shell (:q): a path may be called anything.
# The python that runs Snakemake also measures and draws, whether or not it is on the path.
PYTHON = [sys.executable, "-m"]
SAME_CHOICES = [
    f"--{key}={value}"
    for key, value in {
        "scale": CHOICES.scale,
        "device": CHOICES.device,
        "threads": CHOICES.threads,
        "data-root": CHOICES.data_root,
        "results-dir": CHOICES.results_dir,
        "conf-dir": CHOICES.conf_dir,
        **({"records": PLACE} if PLACE else {}),
    }.items()
]


def records_of(names):
    """What tables of these artefacts are made from, as far as this run has it."""
    if PLACE:
        return packed_files(Path(PLACE)) or [PLACE]
    wanted = (one for one in SITTINGS if not one.artefacts.isdisjoint(names))
    # Of a block a budget may leave some rounds out.
    are_in = any if NODES else all
    return [one.file(RESULTS) for one in wanted if are_in(map(PENDING.is_in, one.steps))]


def counts_of(sweeps):
    """Batch counts of a table, as far as this run has them."""
    if PLACE:
        return []
    return [sweep.path(RESULTS) for sweep in sweeps if PENDING.is_in(Step(sweep.sweep_id, 0))]


def claim_files(name):
    """What an artefact is judged by, where it answers claims."""
    if not expand(name, CHOICES.scale, CHOICES.conf_dir).of_claims:
        return []
    return sorted(Path(CHOICES.conf_dir, "claims").glob("*.yaml"))

wildcard_constraints:
    sitting="[^/]+",
    round="[0-9]+",
    sweep="[^/]+",
    name="[^/]+",
