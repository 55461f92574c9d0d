# What there is to do, worked out once: the grids of conf/experiment on this machine.
import functools
import os
import sys
from pathlib import Path

from harness.contracts.extras import check_extra
from harness.records.store import packed_files
from harness.planning.nodes import admit
from harness.planning.artefacts import (
    choices_from,
    measuring_order,
    plan_artefact,
    plan_counts,
    sweep_sha256,
)
from harness.planning.config import Composer
from harness.planning.blocks import blocks_of
from harness.planning.budget import Step
from harness.planning.grid import EXPERIMENT, experiment_names
from harness.planning.nodes import check_executor, nodes_of
from harness.planning.pending import pending_of
from harness.planning.requests import check_places, word
from harness.planning.overrides import typed
from harness.planning.run_plan import FILE, VARIABLE
from harness.planning.running import begin_run
from harness.planning.sittings import keep_true, sittings_of
from harness.planning.overrides import typed
from harness.planning.run_plan import let_sleep
from harness.records.measured import sitting_path
from harness.trials.sources import SourceHashes, hash_contents
from harness.values.places import CONF_DIR
from plots.declaration import read_declaration
from plots.drawable import select_drawable

check_places(config, os.environ)
check_extra("plots") # not after an hour of measuring
# With records=PLACE nothing is measured: what was measured elsewhere is drawn, whatever is here.
PLACE = config.get("records")
DRAWABLE = select_drawable(config, os.environ) if PLACE else None
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
DECLARATIONS = {name: read_declaration(name, CHOICES.conf_dir) for name in PLANS}
# If a budget is short, headlines come first.
HEADLINES = {name for name, one in DECLARATIONS.items() if "best_baseline" in one.table.get("extra", ())}
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


def count_drawn(rule):
    """Return the number of experiments that a job draws."""
    return len(PLANS) if rule == "report" else int(rule.removeprefix("draw_") in PLANS)


RUNNING = [] # what says so, as long as this process lives

onstart:
    let_sleep(workflow)
    if PENDING:
        check_executor(NODES, workflow.executor_plugin.name)
        if NODES:
            prepare_nodes()
        RUNNING.append(begin_run(RESULTS))
        jobs = list(workflow.dag.needrun_jobs())
        n_drawn = sum(count_drawn(job.rule.name) for job in jobs)
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
    typed("data_root", CHOICES.data_root), f"records={RESULTS}/raw/counts", "bad_data=record",
]
SWEEPS = {sweep.sweep_id: sweep for sweeps in COUNTS.values() for sweep in sweeps}
# What draws, and the code and claims that some tables show: edited, all is drawn again.
DRAWING_SHA256 = hash_contents(
    {path.as_posix(): path
     for folder in ("plots", "harness/models", "systems", Path(CHOICES.conf_dir, "claims"))
     for path in Path(workflow.basedir, folder).rglob("*")
     if path.suffix in (".py", ".yaml", ".html", ".css")}
)
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
    """Return the records that experiments show, as far as this run has them."""
    if PLACE:
        return packed_files(Path(PLACE)) or [PLACE]
    wanted = (one for one in SITTINGS if not one.artefacts.isdisjoint(names))
    # Of a block a budget may leave some rounds out.
    are_in = any if NODES else all
    return [one.file(RESULTS) for one in wanted if are_in(map(PENDING.is_in, one.steps))]


def counts_of(names):
    """Return the batch counts that experiments show, as far as this run has them."""
    if PLACE:
        return []
    sweeps = {sweep.sweep_id: sweep for name in names for sweep in COUNTS[name]}
    return [s.path(RESULTS) for s in sweeps.values() if PENDING.is_in(Step(s.sweep_id, 0))]


def sources_of_records(names):
    """Return hashes of the code that measured: outdated records are gone, whatever showed them."""
    return [] if PLACE else sorted({source_of(t.trial_id) for name in names for t in PLANS[name]})


def experiment_files(names):
    """Return the files of experiments, and of those whose trials they show."""
    others = {t.settings.get(EXPERIMENT) for name in names for t in PLANS[name]} - {None}
    return [f"{CHOICES.conf_dir}/experiment/{name}.yaml" for name in sorted({*names, *others})]

wildcard_constraints:
    sitting="[^/]+",
    round="[0-9]+",
    sweep="[^/]+",
    name="[^/]+",
