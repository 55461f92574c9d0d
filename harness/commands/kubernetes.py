"""Submits, looks after and cancels jobs of Kubernetes for Snakemake, through kubectl.

python -m harness.commands.kubernetes submit TEMPLATE SCRIPT     # prints the job's name
python -m harness.commands.kubernetes status NAME                # running, success or failed
python -m harness.commands.kubernetes cancel NAME...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.errors import ConfigError
from harness.planning.kubernetes_jobs import ending_of, job_for
from harness.terminal.argument_parser import OneLineParser
from harness.terminal.ending import run_command

PATIENCE_S = 60.0
NOT_FOUND = "NotFound"  # kubectl's word for a job that was deleted


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when kubectl did as asked, 1 with one line when it could not."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("kubernetes", partial(_kubernetes, typed), typed)


def _kubernetes(typed: Sequence[str]) -> int:
    parser = OneLineParser(prog="python -m harness.commands.kubernetes", description=__doc__)
    parser.add_argument("action", choices=("submit", "status", "cancel"))
    parser.add_argument("words", nargs="+")
    given = parser.parse_args(typed)
    if given.action == "submit":
        template, script = map(Path, given.words)
        print(_submit(template, script))
    elif given.action == "status":
        print(_status(given.words[0]))
    else:
        _kubectl(["delete", "job", "--ignore-not-found", "--wait=false", *given.words])
    return 0


def _submit(template: Path, script: Path) -> str:
    job = job_for(template, script.read_text(encoding="utf-8"), Path.cwd(), os.environ)
    _kubectl(["create", "--filename=-"], json.dumps(job))
    return str(job["metadata"]["name"])


def _status(name: str) -> str:
    try:
        return ending_of(json.loads(_kubectl(["get", "job", name, "--output=json"])))
    except ConfigError as error:
        if NOT_FOUND in str(error):
            return "failed"
        raise


def _kubectl(words: Sequence[str], text: str = "") -> str:
    try:
        done = subprocess.run(
            ["kubectl", *words],
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise ConfigError(
            "kubectl is not on this machine; run this where it is (profiles/kubernetes/head.yaml)"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"kubectl does not answer within {PATIENCE_S:g} s") from error
    if done.returncode != 0:
        raise ConfigError(f"kubectl {words[0]} fails: {' '.join(done.stderr.split())}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
