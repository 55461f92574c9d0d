"""Python programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

from dynbatch.harness.values.paths import ROOT


def run_python(*arguments: str, **environment: str) -> str:
    """Run Python with arguments and some environment variables changed; return what it prints.

    Raises:
        AssertionError: if it fails, with its errors.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
