"""Which Python measures a trial: this one, or that of its system's own environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from harness.trials.spec import TrialSpec

_ANSWER_S = 30.0  # a Python starts in a fraction of a second, from a slow disk in some
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


def interpreter_of(spec: TrialSpec) -> str:
    """The interpreter that a trial's worker is started with."""
    return str(Path(spec.python).expanduser()) if spec.python else sys.executable


def why_not_startable(spec: TrialSpec) -> str | None:
    """Say why a trial's own interpreter cannot be started, or None."""
    if spec.python is None or shutil.which(interpreter_of(spec)):
        return None
    return no_python(spec, "no such program")


def why_no_python(spec: TrialSpec, last_words: str) -> str | None:
    """Say that a trial's own interpreter, whose worker died, is none, or None.

    Only a Python does a sum in Python; asked once a worker has died, since it costs a start.
    """
    if spec.python is None:
        return None
    command = [interpreter_of(spec), "-c", "print(6 * 7)"]
    answer = b""
    with suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_S,
            check=False,
        ).stdout
    is_python = answer.split() == [b"42"]
    return None if is_python else no_python(spec, f"it is no Python: {last_words}")


def no_python(spec: TrialSpec, why: str) -> str:
    """Say that a trial's own interpreter does not start the worker."""
    return (
        f"system.python={spec.python} does not start the benchmark's worker ({why}); name the"
        " python of an environment that has the benchmark and the system's framework"
    )


def what_it_lacks(spec: TrialSpec, last_line: str) -> str | None:
    """Say what another interpreter lacks, if that is how its worker died, or None.

    A framework that is missing is told by the worker itself; this is a package of the benchmark.
    """
    found = _MISSING.match(last_line) if spec.python is not None else None
    if found is None:
        return None
    return (
        f"system.python={spec.python} lacks {found.group(1)}, which the benchmark needs there, too;"
        f" install both: {spec.python} -m pip install -e '.[EXTRA]', EXTRA as the framework"
    )
