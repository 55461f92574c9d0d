"""The file that says which records a sitting of the pipeline left: that it is over.

It is made of the records, and made again of them wherever it is lost; the records themselves are
nobody's but the process's that measures, so that no failed job takes them along.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from harness.records.files import replace_whole


def sitting_path(results_dir: Path, name: str, round_: int | str) -> Path:
    """Where a sitting's file lies."""
    return results_dir / "sittings" / name / f"{round_}.json"


def write_measured(path: Path, records: Sequence[Path]) -> None:
    """Name the records of a sitting."""
    replace_whole(path, json.dumps({"records": [str(one) for one in records]}, indent=1) + "\n")
