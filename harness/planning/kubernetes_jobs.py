"""Jobs of Kubernetes as values: a template that a user writes, filled in for one script."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from harness.errors import ConfigError
from harness.planning.yaml_files import read_mapping

# Of the environment, what a job is told, too.
PASSED_ON = ("BENCH_DATA", "BENCH_RUN_PLAN", "PYTHONPATH")
NODE = "BENCH_NODE"  # so that a job can say on which node it runs
Ending = Literal["running", "success", "failed"]


def job_for(
    template: Path, script: str, folder: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Fill a template in: the job runs a script's text in a folder, under a name of its own.

    The text itself is the command, as Snakemake takes its scripts away when it ends. Raises
    ConfigError where the template is no Job with a container.
    """
    job = copy.deepcopy(read_mapping(template, "kind", "metadata", "spec"))
    try:
        pod = job["spec"]["template"]["spec"]
        container = pod["containers"][0]
        is_job = job["kind"] == "Job"
    except (KeyError, IndexError, TypeError):
        is_job = False
    if not is_job:
        raise ConfigError(
            f"{template} is no Job whose pod has a container; see profiles/kubernetes/job.yaml"
        )
    job["metadata"]["name"] = f"bench-{uuid.uuid4().hex[:16]}"
    container["command"] = ["/bin/sh", "-c", script]
    container["workingDir"] = str(folder)
    told = [{"name": k, "value": environment[k]} for k in PASSED_ON if k in environment]
    where = {"name": NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container["env"] = [*container.get("env", ()), *told, where]
    return job


def ending_of(job: Mapping[str, Any]) -> Ending:
    """Whether a job goes on, as Snakemake wants to be told; job: what the API says of it."""
    status = job.get("status") or {}
    conditions = status.get("conditions") or ()
    true = {one["type"] for one in conditions if one.get("status") == "True"}
    if "Failed" in true or status.get("failed"):
        return "failed"
    return "success" if "Complete" in true or status.get("succeeded") else "running"
