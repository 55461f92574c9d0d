# Work of a run, planned once from the grids of conf/experiment.
from functools import partial

from snakemake.cli import get_argument_parser

from dynbatch.harness.contracts.extras import check_extra
from dynbatch.harness.measuring.probe import explain_unsupported
from dynbatch.harness.planning.artifacts import (
    build_choices,
    choose_budget,
    describe_undecidable,
    merge_equal_trials,
    plan_artifact,
    plan_counts,
    hash_sweep,
)
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import CLAIMS, EXPERIMENT, list_experiment_names
from dynbatch.harness.planning.jobs import ALL, build_local_jobs, build_node_jobs, update_markers
from dynbatch.harness.planning.nodes import check_machine, check_executor, read_nodes
from dynbatch.harness.planning.job_specs import (
    FILE, VARIABLE, Order, Step, build_done_path, build_order_path, compute_code_version,
)
from dynbatch.harness.planning.overrides import format_override
from dynbatch.harness.planning.pending import find_pending
from dynbatch.harness.planning.requests import TABLES, is_only_claims, select_drawn
from dynbatch.harness.planning.locks import begin_run
from dynbatch.harness.records.store import find_packed_files
from dynbatch.harness.trials.sources import SourceHashes
from dynbatch.plots.declaration import read_declaration
from dynbatch.plots.drawable import hash_drawing_code, select_drawable


def notify(*lines):
    """Print lines to the terminal of the run."""
    print(*lines, sep="\n", file=sys.stderr)

check_extra("plots") # before measuring for an hour
# With records=PLACE, records of other machines are drawn, and nothing is measured.
PLACE = config.get("records")
DRAWABLE = select_drawable(config, os.environ) if PLACE else None
NODES = None if PLACE else read_nodes(config) # nodes that measure; None: this machine
CHOICES = DRAWABLE.choices if DRAWABLE else build_choices(config, os.environ)
COMPOSER = Composer(CHOICES.conf_dir)
# `snakemake claims` plans only what decides claims at this scale, on this device. Snakemake knows the
# targets only after it has read this file, so its parser reads the command here.
TYPED = get_argument_parser().parse_known_args(sys.argv[1:])[0]
ONLY_CLAIMS = is_only_claims(TYPED.targets) and not PLACE
if DRAWABLE:
    notify(*DRAWABLE.lines)
    PLANS = {name: part.trials for name, part in DRAWABLE.drawn.items()}
    COUNTS = {name: part.sweeps for name, part in DRAWABLE.drawn.items()}
else:
    PLANS = {
        name: plan_artifact(name, CHOICES, COMPOSER, only_decidable=ONLY_CLAIMS)
        for name in ([CLAIMS] if ONLY_CLAIMS else list_experiment_names(CHOICES.conf_dir))
    }
    COUNTS = {name: plan_counts(name, CHOICES, only_decidable=ONLY_CLAIMS) for name in PLANS}
TRIALS = {
    trial.trial_id: trial for trial in merge_equal_trials(t for plan in PLANS.values() for t in plan)
}
if not DRAWABLE:
    for planned in TRIALS.values():
        check_machine(planned.spec, NODES)
DECLARATIONS = {name: read_declaration(name, CHOICES.conf_dir) for name in PLANS}
# Headlines have priority within a budget.
HEADLINES = {name for name, one in DECLARATIONS.items() if "best_baseline" in one.table.get("extra", ())}
SOURCES = SourceHashes()
BUDGET = choose_budget(config, CHOICES.device)
CPU = NODES and (NODES.cpu or "") # text in the name of the CPU whose records give durations
PENDING = (
    None if DRAWABLE
    else find_pending(
        CHOICES, PLANS, COUNTS, HEADLINES, SOURCES, BUDGET, CPU,
        *([] if NODES else [partial(explain_unsupported, results_dir=RESULTS, notify=notify)]),
        drawn=select_drawn(TYPED.targets, PLANS),
    )
)
if ONLY_CLAIMS and TYPED.dryrun: # a run prints it when it starts
    notify(PENDING.describe_work(PENDING.now, n_drawn=1))
# Jobs by name: one per experiment and one for all on this machine, or one per few points on nodes.
JOBS = {}
if PENDING:
    JOBS = (
        build_node_jobs(PLANS, NODES.block_s, RESULTS) if NODES
        else build_local_jobs(PLANS, HEADLINES if BUDGET else ())
    )
    update_markers(JOBS.values(), RESULTS, PENDING.lacking.__contains__)
# Plan for the processes that measure: time limit and expected durations.
RUN_PLAN = RESULTS / FILE

def count_drawn(rule):
    """Return the number of experiments that a job draws."""
    return len(PLANS) if rule == "report" else int(rule.removeprefix("drawn_") in PLANS)


def select_steps(name):
    """Return the steps that a job measures; with --forcerun, steps that failed before, too."""
    is_forced = workflow.dag_settings.forceall or "measure" in workflow.dag_settings.forcerun
    return PENDING.choose(JOBS[name].steps, failed=is_forced)


def write_orders(names):
    """Write the job specs of jobs that measure."""
    code = compute_code_version() if NODES else ""
    for name in names:
        steps = set(select_steps(name))
        repetitions = [tuple(step for step in repetition if step in steps) for repetition in JOBS[name].repetitions]
        trials = {step.name for step in steps}
        Order(
            RESULTS,
            NODES,
            code,
            repetitions=tuple(filter(None, repetitions)),
            specs={trial_id: TRIALS[trial_id].to_spec(CHOICES.conf_dir) for trial_id in trials},
            unsupported={trial_id: why for trial_id, why in PENDING.unsupported.items() if trial_id in trials},
        ).write(build_order_path(RESULTS, name))


RUNNING = [] # open lock file that marks this run as active

onstart:
    if PENDING:
        check_executor(NODES, workflow.executor_plugin.name)
        if NODES:
            prepare_nodes()
        RUNNING.append(begin_run(RESULTS))
        jobs = list(workflow.dag.needrun_jobs())
        names = [job.wildcards.job for job in jobs if job.rule.name == "measure"]
        counted = [Step(job.wildcards.sweep, 0) for job in jobs if job.rule.name == "counts"]
        write_orders(names)
        steps = {step for name in names for step in select_steps(name)} | set(counted)
        n_drawn = sum(count_drawn(job.rule.name) for job in jobs)
        notify(PENDING.describe_work(steps, n_drawn))
        if CLAIMS in PLANS:
            notify(describe_undecidable(CHOICES))
        PENDING.put_outdated_aside()
        PENDING.build_run_plan(steps, n_drawn).write(RUN_PLAN)
        os.environ[VARIABLE] = str(RUN_PLAN) # after writing it: the file may be of an earlier run

# Snakemake's own message on an unknown target does not list the choices.
DRAWN = {"draw_all", *(f"draw_{name}" for name in PLANS)}
for target in ("draw_claims" if typed == CLAIMS else typed for typed in TYPED.targets):
    is_name = Path(target).stem == target # not a file below draw_...
    if target in PLANS or (is_name and target.startswith("draw_") and target not in DRAWN):
        raise make_target_error(target, PLANS)

# Arguments of each count in addition to its settings.
COUNT_PLACES = [
    format_override("data_root", CHOICES.data_root), f"records={RESULTS}/raw/counts", "on_invalid_data=record",
]
SWEEPS = {sweep.sweep_id: sweep for sweeps in COUNTS.values() for sweep in sweeps}


def hash_sweep_code(wildcards):
    return hash_sweep(SWEEPS[wildcards.sweep], COMPOSER, SOURCES)


def count_threads(wildcards):
    return N_CPUS if SWEEPS[wildcards.sweep].is_timed else 1

# Commands are lists of arguments, which rules quote for the shell (:q), so paths may have any name.
SAME_CHOICES = [
    f"--{key.replace('_', '-')}={getattr(CHOICES, key)}"
    for key in ("scale", "device", "threads", "data_root", "results_dir", "conf_dir")
]
if PLACE:
    SAME_CHOICES.append(f"--records={PLACE}")


def to_measure(name=ALL):
    """Return the inputs that a target must list itself.

    Snakemake creates no missing inputs of files that exist.
    """
    return [] if PLACE else find_record_files(name)


def find_record_files(name=ALL):
    """Return the files of measured jobs that an experiment, or all experiments, need."""
    if PLACE:
        return find_packed_files(Path(PLACE)) or [PLACE]
    wanted = [JOBS[name]] if name in JOBS else []
    if NODES:
        wanted = [job for job in JOBS.values() if name == ALL or name in job.artifacts]
    return [build_done_path(RESULTS, job.name) for job in wanted if any(map(PENDING.is_in, job.steps))]


def find_count_files(names):
    """Return the files of batch counts that experiments show and that this run has."""
    if PLACE:
        return []
    sweeps = {sweep.sweep_id: sweep for name in names for sweep in COUNTS[name]}
    return [s.build_path(RESULTS) for s in sweeps.values() if PENDING.is_in(Step(s.sweep_id, 0))]


def find_experiment_files(names):
    """Return the files of experiments, and of other experiments whose trials they show."""
    others = {t.settings.get(EXPERIMENT) for name in names for t in PLANS[name]} - {None}
    return [f"{CHOICES.conf_dir}/experiment/{name}.yaml" for name in sorted({*names, *others})]
