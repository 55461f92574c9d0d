"""`bench-try`: a first table and figure in about a minute, for three systems on one workload.

    bench-try [results_dir=DIRECTORY]

It needs no data. Trials that have a record are not measured again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import starmap
from pathlib import Path

from dynbatch.harness.contracts.extras import check_extra
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.planning.artifacts import build_choices, plan_artifact
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import format_override
from dynbatch.harness.planning.requests import format_pipeline_command
from dynbatch.harness.terminal.command_line import parse, plan
from dynbatch.harness.terminal.exit_handling import OneLineParser, make_command
from dynbatch.harness.terminal.measurement import lock_results, measure_all
from dynbatch.harness.values.paths import is_checkout
from dynbatch.plots.declaration import SYSTEMS
from dynbatch.plots.draw import draw_experiment
from dynbatch.plots.experiment import load_experiment
from dynbatch.plots.terminal import compare_with_baselines

NAME = "first_look"
RESULTS = "results_dir="


@make_command("bench-try")
def main(typed: list[str]) -> int:
    """Measure missing trials, draw them, and print their table and a sentence.

    Returns:
        0 if all is measured and drawn, 1 for wrong input or a machine that cannot run it, and 3 if
        a trial crashed or its result is wrong.
    """
    results_dir = _parse_results_dir(typed)
    check_extra("plots")
    settings = {"scale": "smoke", "device": "cpu", "results_dir": str(results_dir)}
    arguments = [f"experiment={NAME}", *starmap(format_override, settings.items())]
    planned = plan(parse(arguments), arguments)
    with lock_results(planned, "bench-try"), ForkServers() as servers:
        code = measure_all(planned, servers)
    choices = build_choices(settings, os.environ)
    trials = plan_artifact(NAME, choices, Composer(choices.conf_dir))
    experiment = load_experiment(NAME, choices, trials, command=choose_command("try"))
    draw_experiment(experiment, results_dir)
    stem, base = experiment.declaration.stems[0], experiment.compare[SYSTEMS][0]
    print("", (results_dir / f"{stem}.md").read_text(encoding="utf-8"), sep="\n")
    print(*compare_with_baselines(experiment.rows, base, experiment.systems), sep="\n")
    print(f"\ntime of each phase: {results_dir / 'figures' / NAME}.png", end="; ")
    print(f"records: {results_dir / 'raw'}", end="; ")
    print(f"warnings (†): docs/measuring.md; all experiments: {choose_command('all')}")
    return code


def _parse_results_dir(typed: Sequence[str]) -> Path:
    parser = OneLineParser(prog="bench-try", description=__doc__)
    parser.add_argument("results_dir", nargs="*", metavar=f"{RESULTS}DIRECTORY")
    words = parser.parse_args(typed).results_dir
    unknown = [word for word in words if not word.startswith(RESULTS)]
    if unknown:
        raise ConfigError(
            f"unexpected argument {unknown[0]}: expected {RESULTS}DIRECTORY or nothing; remove it"
        )
    return Path(words[-1].removeprefix(RESULTS) if words else "results")


def choose_command(target: str) -> str:
    """Return the command for a target of the Makefile, which an installed package does not have."""
    if is_checkout():
        return f"make {target}"
    return "bench-try" if target == "try" else format_pipeline_command(target)


if __name__ == "__main__":
    sys.exit(main())
