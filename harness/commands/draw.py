"""Draw experiments from their records.

    python -m dynbatch.harness.commands.draw [NAME ...] [options]

Without a name, it draws all experiments. --records=PLACE draws records of a packed file or
a directory, also of other machines. --report=FILE also writes the HTML report of the drawn
experiments. An experiment that fails has one line; the others are drawn, but the report is not
written.

Exit codes: 0 success, 1 a wrong name, configuration or record.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from dynbatch.harness.contracts.extras import check_extra
from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine.facts import list_usable_cpus
from dynbatch.harness.measuring.processes.child import bind_to_parent
from dynbatch.harness.planning.artifacts import Choices, build_choices, plan_artifact, plan_counts
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import list_experiment_names, read_experiment
from dynbatch.harness.planning.requests import DRAW, format_pipeline_command
from dynbatch.harness.terminal.exit_handling import (
    EXIT_USAGE,
    OneLineParser,
    make_command,
    print_error,
    print_message,
)
from dynbatch.plots.draw import draw_experiment
from dynbatch.plots.drawable import Drawable, select_drawable
from dynbatch.plots.experiment import load_experiment, load_held

DIRECTORIES = ("data-root", "results-dir", "conf-dir")
OPTIONS = ("scale", "device", "threads", *DIRECTORIES, "records", "report")
COMMAND = "draw"


@make_command(COMMAND, again="the same snakemake command")
def main(typed: list[str]) -> int:
    options = vars(parse(typed))
    return draw(options.pop("names"), options)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse options, which have the same meaning as in `snakemake --config`."""
    parser = OneLineParser(prog="python -m dynbatch.harness.commands.draw", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="an experiment of conf/experiment")
    for option in OPTIONS:
        parser.add_argument(f"--{option}")
    return parser.parse_args(arguments)


def draw(names: Sequence[str], options: Mapping[str, str | None]) -> int:
    """Plan experiments as the pipeline does, draw their records, and write the report."""
    check_extra("plots")
    draw_one: Callable[[str], None]
    if options.get("records"):
        held = select_drawable(options, os.environ, names)
        choices, names = held.choices, names or list(held.drawn)
        draw_one = partial(draw_held, held=held)
    else:
        choices = build_choices(options, os.environ)
        names = names or list_experiments(choices)
        draw_one = partial(draw_measured, choices=choices, composer=Composer(choices.conf_dir))
    if not draw_each(names, draw_one):
        return EXIT_USAGE
    if options.get("report"):
        report = importlib.import_module("dynbatch.plots.report")  # the only user of jinja2
        report.write_report(Path(str(options["report"])), choices.results_dir, names)
    return 0


def list_experiments(choices: Choices) -> list[str]:
    names = list_experiment_names(choices.conf_dir)
    return [n for n in names if choices.scale in read_experiment(n, choices.conf_dir)["scales"]]


def draw_each(names: Sequence[str], draw_one: Callable[[str], None]) -> bool:
    """Draw experiments, one on each CPU, and print a line for each; return whether all were drawn.

    Args:
        draw_one: can be sent to another process.
    """
    failed = []
    n_processes = min(len(names), len(list_usable_cpus())) or 1
    with ProcessPoolExecutor(n_processes, None, bind_to_parent, (os.getpid(),)) as pool:
        jobs = {name: pool.submit(draw_one, name) for name in names}
        try:
            for number, (name, job) in enumerate(jobs.items(), 1):
                try:
                    job.result()
                except BenchError as error:
                    failed.append(name)
                    print_error(f"{name}: {error}", COMMAND)
                    continue
                except Exception as error:
                    error.add_note(f"while drawing {name}")
                    raise
                if len(names) > 1:
                    print_message(f"drawn {number}/{len(names)}: {name}")
        finally:
            pool.shutdown(cancel_futures=True)
    return not failed


def draw_measured(name: str, choices: Choices, composer: Composer) -> None:
    trials = plan_artifact(name, choices, composer)
    command = f"bench experiment={name} scale={choices.scale}"
    if not trials:
        command = format_pipeline_command(f"{DRAW}{name}", {"scale": choices.scale})
    sweeps = plan_counts(name, choices)
    experiment = load_experiment(name, choices, trials, sweeps, command=command)
    draw_experiment(experiment, choices.results_dir)


def draw_held(name: str, held: Drawable) -> None:
    """Draw one experiment from records that were measured elsewhere."""
    draw_experiment(load_held(name, held), held.choices.results_dir)


if __name__ == "__main__":
    sys.exit(main())
