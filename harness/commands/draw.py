"""Draw one paper artefact from its records: python -m harness.commands.draw NAME [options].

With --records FILE, its records are those in the file or folder, wherever they were measured.

Exit codes: 0 drawn, 1 a wrong name, configuration or record.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial

from harness.contracts.extras import check_extra
from harness.planning.artefacts import choices_from, plan_artefact, plan_counts
from harness.planning.compose import Composer
from harness.terminal.argument_parser import OneLineParser
from harness.terminal.ending import run_command
from plots.numbers.drawable import Drawable, drawable
from plots.numbers.gather import gather
from plots.writing.artefact import draw_artefact

OPTIONS = ("scale", "device", "threads", "data-root", "results-dir", "conf-dir", "records")
DRAWS_AGAIN = "the same run of snakemake"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the artefact's records, draw it, and write what the report needs."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("draw", partial(_draw, typed), again=DRAWS_AGAIN)


def _draw(typed: Sequence[str]) -> int:
    options = vars(parse(typed))
    draw(options.pop("name"), options)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options mean what they mean in `snakemake --config`."""
    parser = OneLineParser(prog="python -m harness.commands.draw", description=__doc__)
    parser.add_argument("name", help="an artefact: a file of conf/experiment")
    for option in OPTIONS:
        parser.add_argument(f"--{option}")
    return parser.parse_args(arguments)


def draw(name: str, options: dict[str, str | None]) -> None:
    """Plan the artefact as the pipeline did, and draw what the records say."""
    check_extra("plots")
    if options.get("records"):
        draw_held(name, drawable(options, os.environ, name))
        return
    choices = choices_from(options, os.environ)
    trials = plan_artefact(name, choices, Composer(choices.conf_dir))
    artefact = gather(name, choices, trials, plan_counts(name, choices))
    command = f"bench experiment={name} scale={choices.scale}"
    if not trials:
        command = f"snakemake draw_{name} --config scale={choices.scale}"
    draw_artefact(artefact, choices.results_dir, command)


def draw_held(name: str, found: Drawable) -> None:
    """Draw one artefact of records that were measured elsewhere."""
    part, choices = found.drawn[name], found.choices
    artefact = gather(name, choices, part.trials, part.sweeps, found.source)
    command = f"snakemake draw_{name} --config records={found.place}"
    draw_artefact(artefact, choices.results_dir, command)


if __name__ == "__main__":
    sys.exit(main())
