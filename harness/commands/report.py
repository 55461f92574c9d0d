"""Write the HTML report: python -m harness.commands.report OUT SHEET... [--results-dir DIR].

Of several kinds of machines, each drawn into a folder named as it: OUT --kinds DIR...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.terminal.argument_parser import OneLineParser
from harness.terminal.ending import run_command
from plots.writing.report import write_report, write_report_of_kinds


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one page from the sheets that `draw` left, in the order given."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("report", partial(_report, typed), again="the same run of snakemake")


def _report(typed: Sequence[str]) -> int:
    parser = OneLineParser(prog="python -m harness.commands.report", description=__doc__)
    parser.add_argument("out", type=Path, help="the HTML file")
    parser.add_argument("sheets", type=Path, nargs="*", help="artefacts/<name>.json")
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    parser.add_argument("--kinds", type=Path, nargs="+", help="a folder of results for each kind")
    options = parser.parse_args(typed)
    if options.kinds:
        write_report_of_kinds(options.kinds, options.out)
        return 0
    write_report(options.sheets, options.results_dir, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
