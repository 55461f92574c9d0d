"""`bench-try`: a first result in about a minute: three systems on one workload, a table, a picture.

    bench-try [results_dir=FOLDER]

It needs no data and no choice; what is measured already is not measured again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.contracts.extras import check_extra
from harness.errors import ConfigError
from harness.planning.artefacts import choices_from, plan_artefact
from harness.planning.compose import Composer
from harness.planning.pipeline_places import setting
from harness.terminal.command_line import parse, plan
from harness.terminal.ending import run_command
from harness.terminal.measurement import in_turn, measure_all
from plots.numbers.gather import gather
from plots.words.first_look import lines_of
from plots.writing.artefact import draw_artefact

NAME = "first_look"
RESULTS = "results_dir="


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when all was measured and drawn, 1 where the machine or a word refuses it.

    And 3 where a trial crashed or its result is wrong, which the table says.
    """
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("bench-try", partial(_try, typed), typed)


def _try(typed: Sequence[str]) -> int:
    return look(_results_dir(typed))


def _results_dir(typed: Sequence[str]) -> Path:
    unknown = [word for word in typed if not word.startswith(RESULTS)]
    if unknown:
        raise ConfigError(f"{RESULTS}FOLDER is all it takes, not {unknown[0]}")
    return Path(typed[-1].removeprefix(RESULTS) if typed else "results")


def look(results_dir: Path) -> int:
    """Measure what is missing, draw it, print table and sentence; return the exit code."""
    check_extra("plots")
    said = {"scale": "smoke", "device": "cpu", "results_dir": str(results_dir)}
    words = [f"experiment={NAME}", *(setting(key, value) for key, value in said.items())]
    planned = plan(parse(words), words)
    with in_turn(planned, "bench-try"):
        code = measure_all(planned)
    choices = choices_from(said, os.environ)
    trials = plan_artefact(NAME, choices, Composer(choices.conf_dir))
    artefact = gather(NAME, choices, trials)
    draw_artefact(artefact, results_dir, "make try")
    print("", *lines_of(artefact), sep="\n")
    print(f"\nwhere the time goes: {results_dir / 'figures' / NAME}.png; all of it: make all")
    return code


if __name__ == "__main__":
    sys.exit(main())
