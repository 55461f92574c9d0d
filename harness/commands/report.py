"""Write the HTML report of drawn experiments: python -m harness.commands.report OUT RESULTS_DIR...

Several results directories are shown side by side, each named as its kind of machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.terminal.ending import OneLineParser, run_command
from plots.report import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one page from what `draw` wrote, and return the exit code."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("report", partial(_write, typed), again="the same run of snakemake")


def _write(typed: Sequence[str]) -> int:
    parser = OneLineParser(prog="python -m harness.commands.report", description=__doc__)
    parser.add_argument("out", type=Path, help="the HTML file")
    parser.add_argument("results_dirs", type=Path, nargs="+", help="directories drawn into")
    options = parser.parse_args(typed)
    write_report(options.out, options.results_dirs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
