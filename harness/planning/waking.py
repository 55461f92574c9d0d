"""How Snakemake waits for a job: asleep, so that what measures has the machine to itself."""

from __future__ import annotations

from typing import Any


def let_sleep(workflow: Any) -> None:
    """Take the limit of jobs a second from a workflow that is about to run.

    With it, every look for the next job starts a timer that makes Snakemake look again a second
    later, once a second for every job that ever ran (snakemake/scheduling/job_scheduler.py, 9.x):
    after 200 jobs that was a quarter of a core beside what was measured, after 280 all of it.
    """
    workflow.scheduler.job_rate_limiter = None
