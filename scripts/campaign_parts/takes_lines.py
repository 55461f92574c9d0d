"""What a child answers about command lines: exit code and words, without measuring anything."""

from __future__ import annotations

import io
import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from hydra.core.global_hydra import GlobalHydra

from harness.commands import bench, collect, data, schedule

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "bench": bench.main,
    "bench-schedule": schedule.main,
    "bench-collect": collect.main,
    "bench-data": data.main,
}


def _measures_nothing(*_: object) -> int:
    """In place of what measures: up to here all was checked and planned."""
    return 0


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Run a command in this process, in the folder of its own."""
    os.chdir(question["folder"])
    out, err = io.StringIO(), io.StringIO()
    stopped = patch.object(bench, "measure_all", _measures_nothing)
    with stopped, redirect_stdout(out), redirect_stderr(err):
        try:
            code: Any = COMMANDS[question["command"]](question["arguments"])
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            traceback.print_exc()
            code = 2
        finally:
            GlobalHydra.instance().clear()
    return {"code": code or 0, "stdout": out.getvalue(), "stderr": err.getvalue()}
