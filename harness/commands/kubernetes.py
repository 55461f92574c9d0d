"""Submits, checks and cancels Kubernetes jobs for Snakemake, through kubectl.

python -m dynbatch.harness.commands.kubernetes submit TEMPLATE SCRIPT  # prints the job's name
python -m dynbatch.harness.commands.kubernetes status NAME             # running, success or failed
python -m dynbatch.harness.commands.kubernetes cancel NAME...
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.slurm import run_tool
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.terminal.exit_handling import OneLineParser, make_command

NOT_FOUND = "NotFound"  # in kubectl's message for a job that was deleted


@make_command("kubernetes")
def main(typed: list[str]) -> int:
    parser = OneLineParser(
        prog="python -m dynbatch.harness.commands.kubernetes", description=__doc__
    )
    parser.add_argument("action", choices=("submit", "status", "cancel"))
    parser.add_argument("words", nargs="+")
    given = parser.parse_args(typed)
    if given.action == "submit":
        template, script = map(Path, given.words)
        job = build_job(template, script.read_text(encoding="utf-8"), Path.cwd(), os.environ)
        _run_kubectl(["create", "--filename=-"], json.dumps(job))
        print(job["metadata"]["name"])
    elif given.action == "status":
        try:
            job = json.loads(_run_kubectl(["get", "job", given.words[0], "--output=json"]))
            print(determine_ending(job))
        except ConfigError as error:
            if NOT_FOUND not in str(error):
                raise
            print("failed")
    else:
        _run_kubectl(["delete", "job", "--ignore-not-found", "--wait=false", *given.words])
    return 0


def _run_kubectl(arguments: Sequence[str], text: str = "") -> str:
    try:
        done = run_tool(["kubectl", *arguments], text)
    except FileNotFoundError as error:
        raise ConfigError(
            "kubectl is not installed; run on the head pod (profiles/kubernetes/head.yaml)"
        ) from error
    if done.returncode != 0:
        raise ConfigError(
            f"kubectl {arguments[0]} failed: {' '.join(done.stderr.split())}; fix it or contact"
            " your cluster administrator"
        )
    return done.stdout


# Environment variables that a job inherits.
PASSED_ON = ("BENCH_DATA", "BENCH_RUN_PLAN", "PYTHONPATH")
NODE = "BENCH_NODE"  # environment variable of a job with the name of its node
Ending = Literal["running", "success", "failed"]


def build_job(
    template: Path, script: str, folder: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Build a job with a unique name from a template.

    The script's text is the command, because Snakemake deletes its script files when it ends.

    Raises:
        ConfigError: if the template is not a Job with a container.
    """
    job = read_mapping(template, "kind", "metadata", "spec")
    try:
        pod = job["spec"]["template"]["spec"]
        container = pod["containers"][0]
        is_job = job["kind"] == "Job"
    except (KeyError, IndexError, TypeError):
        is_job = False
    if not is_job:
        raise ConfigError(
            f"{template} is not a Job with a container; fix it as in profiles/kubernetes/job.yaml"
        )
    job["metadata"]["name"] = f"bench-{uuid.uuid4().hex[:16]}"
    container["command"] = ["/bin/sh", "-c", script]
    container["workingDir"] = str(folder)
    variables = [{"name": k, "value": environment[k]} for k in PASSED_ON if k in environment]
    where = {"name": NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container["env"] = [*container.get("env", ()), *variables, where]
    return job


def determine_ending(job: Mapping[str, Any]) -> Ending:
    """Return the state of a job in Snakemake's terms; `job` is its object from the API."""
    status = job.get("status") or {}
    conditions = status.get("conditions") or ()
    true = {condition["type"] for condition in conditions if condition.get("status") == "True"}
    if "Failed" in true or status.get("failed"):
        return "failed"
    return "success" if "Complete" in true or status.get("succeeded") else "running"


if __name__ == "__main__":
    sys.exit(main())
