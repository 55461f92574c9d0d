"""Calls of pip, of the Python that runs this."""

from __future__ import annotations

import subprocess
import sys

from harness.errors import ConfigError

MOST_WORDS = 60  # of what pip says


def pip(command: str, *words: str) -> None:
    """Run a command of pip; raises ConfigError with what it says of its error, or says last."""
    whole = [sys.executable, "-m", "pip", command, "--quiet", *words]
    done = subprocess.run(whole, capture_output=True, text=True)
    if done.returncode:
        at = done.stderr.find("ERROR:")
        lines = done.stderr.strip().splitlines() or ["nothing"]
        said = (lines[-1] if at < 0 else done.stderr[at:]).split()
        raise ConfigError(f"pip {command} failed: {' '.join(said[:MOST_WORDS])}")
