"""Python programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

from dynbatch.harness.values.paths import ROOT


def end_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python to its end with some environment variables changed.

    It finds all modules of the repository: tests/__init__.py sets PYTHONPATH.
    """
    command = [sys.executable, *arguments]
    changed = os.environ | environment
    return subprocess.run(command, env=changed, cwd=ROOT, capture_output=True, text=True)


def run_python(*arguments: str, **environment: str) -> str:
    """Do the same for a program that must succeed, and return what it prints."""
    done = end_python(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
