"""The whole job of a machine that has a GPU for a while, in steps of minutes, each done once.

    python -m scripts.gpu_job --minutes 9          # the next steps, until the time is up
    python -m scripts.gpu_job --minutes 9 --again  # those that failed, too

Tests first, then ceilings, the headline artefacts and Cavs's at the papers' sizes, and a profile.
What was done is in results/gpu/, and all that is to be carried back in results/gpu.tar.gz, which is
written anew at the end of every call.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.records.files import replace_whole
from harness.values.places import CONF_DIR, ROOT

FOLDER = ROOT / "results" / "gpu"
CARRIED = ("gpu", "raw", "tables", "figures", "artefacts", "sittings")
N_SHARDS = 6  # of the tests: their kernels take minutes to compile
LEAST_S = 60.0  # with less left, no step is begun
LEFT = "are left for the next run"  # harness/planning/pending.py says so


@dataclass(frozen=True, slots=True)
class Step:
    """A command of at most so many seconds; goes_on: it is done when it says that nothing is left.

    {budget} in a word of the command becomes the seconds that it may take.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float = 500.0
    goes_on: bool = False


def steps(python: str, snakemake: str) -> tuple[Step, ...]:
    """All steps in order."""
    measure = (snakemake, "--quiet", "rules")
    paper = ("--config", "scale=paper", "device=cuda", "budget={budget}s")
    parallel = ("-n", "8", "--dist", "worksteal", "-p", "tests.support.shards")
    test = (python, "-m", "pytest", "-q", "-m", "gpu", *parallel)
    return (
        Step("doctor", (python, "-m", "harness.commands.doctor"), 120),
        *(
            Step(f"tests_{k}", (*test, f"--shard={k}/{N_SHARDS}", "tests/engine", "tests/systems"))
            for k in range(1, N_SHARDS + 1)
        ),
        Step("ceilings", (python, "-m", "scripts.gpu_ceilings", "cuda"), 120),
        Step("headlines", (*measure, "draw_answers", *paper), goes_on=True),
        Step("cavs", (*measure, *artefacts_of("cavs"), *paper), goes_on=True),
        Step("profile", (python, "-m", "scripts.gpu_profile", "cuda"), 240),
    )


def artefacts_of(paper: str) -> list[str]:
    """The rules that draw a paper's artefacts."""
    names = (path.stem for path in CONF_DIR.glob(f"experiment/{paper}_*.yaml"))
    return sorted(f"draw_{name}" for name in names)


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a step: its exit status, how long all calls of it took, whether it is over."""

    status: int
    seconds: float
    is_over: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every step is over and none failed."""
    parser = argparse.ArgumentParser(description="The GPU job, step by step.")
    parser.add_argument("--minutes", type=float, default=9.0, help="how long this call may take")
    parser.add_argument("--again", action="store_true", help="also what failed before")
    flags = parser.parse_args(arguments)
    bin_ = Path(sys.executable).parent
    every = steps(sys.executable, str(bin_ / "snakemake"))
    found = work(every, FOLDER, flags.minutes * 60, again=flags.again)
    pack(FOLDER.parent)
    for step in every:
        print(f"{step.name:10} {words(found.get(step.name))}")
    return int(not all(one.name in found and found[one.name].status == 0 for one in every))


def work(
    every: Sequence[Step],
    folder: Path,
    seconds: float,
    *,
    again: bool = False,
    now: Callable[[], float] = time.monotonic,
) -> dict[str, Done]:
    """Run what is not over until the time is up; returns what is known of every step."""
    folder.mkdir(parents=True, exist_ok=True)
    until = now() + seconds
    found = {step.name: done for step in every if (done := _known(folder, step)) is not None}
    for step in every:
        before = found.get(step.name)
        if before is not None and before.is_over and not (again and before.status):
            continue
        while (left := min(until - now(), step.limit_s)) >= LEAST_S:
            begin = now()
            status, text = _run(step, folder, left)
            spent = now() - begin + (before.seconds if before else 0.0)
            is_over = status != 124 and not (step.goes_on and LEFT in text)
            before = found[step.name] = Done(status, spent, is_over)
            record = {"status": status, "seconds": spent, "is_over": is_over}
            replace_whole(folder / f"{step.name}.json", json.dumps(record))
            if is_over or status:
                break
    return found


def _known(folder: Path, step: Step) -> Done | None:
    path = folder / f"{step.name}.json"
    return Done(**json.loads(path.read_text())) if path.exists() else None


def _run(step: Step, folder: Path, limit_s: float) -> tuple[int, str]:
    """Exit status (124: stopped in time) and all that a command said, which is kept."""
    budget = str(int(limit_s - LEAST_S / 2))
    command = [word.replace("{budget}", budget) for word in step.command]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False
        )
        status, text = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"", error.stderr or b"")
        text = "".join(x.decode(errors="replace") if isinstance(x, bytes) else x for x in said)
        status = 124
    with (folder / f"{step.name}.txt").open("a") as file:
        file.write(f"$ {' '.join(command)}\n{text}\nexit status {status}\n")
    return status, text


def pack(results: Path) -> Path:
    """Everything to carry back, in one file."""
    path = results / "gpu.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name in CARRIED:
            if (results / name).exists():
                file.add(results / name, name)
    return path


def words(done: Done | None) -> str:
    """One line about a step."""
    if done is None:
        return "not begun"
    state = "over" if done.is_over else "goes on"
    failed = f", exit status {done.status}" if done.status else ""
    return f"{state} after {done.seconds:.0f} s{failed}"


if __name__ == "__main__":
    sys.exit(main())
