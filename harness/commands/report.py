"""Write the HTML report: python -m harness.commands.report OUT SHEET... [--results-dir DIR]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.errors import BenchError
from plots.writing.report import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one page from the sheets that `draw` left, in the order given.

    Returns 0, or 1 with one line where it cannot be written.
    """
    parser = argparse.ArgumentParser(prog="python -m harness.commands.report", description=__doc__)
    parser.add_argument("out", type=Path, help="the HTML file")
    parser.add_argument("sheets", type=Path, nargs="+", help="artefacts/<name>.json")
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args(arguments)
    try:
        write_report(options.sheets, options.results_dir, options.out)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
