"""Directories in which whole commands run, and the promises of docs/faults.md as assertions."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from dynbatch.harness.compiler.object_code import FOLDER as OBJECT_CODE
from dynbatch.harness.machine.caches import FOLDER as SOURCE
from dynbatch.harness.machine.caches import NAME, make_cache_folder
from dynbatch.harness.values.paths import ROOT
from tests.support.processes import wait_until

MARK = "TEST_SANDBOX"  # environment variable that identifies processes, including detached ones
MAX_TEXT = 200_000  # characters of a command's output that are read
MAX_FILE_BYTES = 512 * 2**20  # a flood must not fill the disk of this machine
LIMIT_S = 120.0  # for a command that takes seconds
STACK = re.compile(r"^Traceback \(most recent call last\)|^  File \"[^\"]+\", line \d+", re.M)
TINY = (
    *("model=tree_fc", "dataset=complete_trees", "dataset.options.n_leaves=4", "hidden_size=4"),
    *("batch_size=2", "timing.min_seconds=0", "timing.n_mini_batches=1", "timing.min_passes=1"),
)
# A sweep of counts, and its number of rows.
COUNT = (
    *("model=tree_lstm", "dataset=sst_synthetic", "batch_size=1,2", "hidden_size=4"),
    *("policy=agenda,depth,sufficient", "timing.min_seconds=0"),
)
N_ROWS = 6
ODD = ("system=reference", "system.name=odd", "system.adapter=tests.support.odd_system")
LOG = "measured.log"

campaign = pytest.mark.campaign


def examples(few: int, many: int) -> settings:
    """Return settings that draw `few` examples, and `many` in make campaign."""
    is_campaign = settings.get_current_profile_name() == "campaign"
    return settings(max_examples=many if is_campaign else few, deadline=None)


def run_module(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this repository."""
    return [sys.executable, "-m", module, *arguments]


@dataclass(frozen=True, slots=True)
class Ended:
    """Result of a command; returncode is None after a timeout."""

    returncode: int | None
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """The last line that is not blank."""
        lines = [line for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else "nothing was printed"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Working directory with results and temporary files; sandboxes may share a user's cache."""

    folder: Path
    cache: Path
    grace_s: float = 3.0  # in which processes must notice the end of their parent

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "TMPDIR": str(self.tmp),
            "XDG_CACHE_HOME": str(self.cache),
            MARK: str(self.folder),
        }
        return {**os.environ, **own}

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a command in its own session, with its output in files of the directory."""
        for folder in (self.folder, self.tmp, self.cache):
            folder.mkdir(parents=True, exist_ok=True)
        out, err = ((self.folder / name).open("wb") for name in ("said.out", "said.err"))
        with out, err:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        with suppress(ProcessLookupError):  # it has ended already
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
        return process

    def wait(self, process: subprocess.Popen[bytes], limit_s: float = LIMIT_S) -> Ended:
        """Wait for a command; after a timeout, kill all processes of the sandbox."""
        returncode: int | None = None
        try:
            returncode = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.end_all()
            process.wait()
        except BaseException:  # the test itself is stopped
            self.end_all()
            raise
        return Ended(returncode, _read(self.folder / "said.out"), _read(self.folder / "said.err"))

    def run(self, command: Sequence[str], limit_s: float = LIMIT_S) -> Ended:
        return self.wait(self.start(command), limit_s)

    def processes(self) -> list[psutil.Process]:
        """Return the processes that are alive."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            is_alive = process.status() != psutil.STATUS_ZOMBIE
            return is_alive and process.environ().get(MARK) == str(self.folder)
        except (psutil.Error, OSError):
            return False

    def end_all(self) -> None:
        while found := self.processes():
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(found, timeout=1)


@contextmanager
def sandbox(cache: Path | None = None, grace_s: float = 3.0) -> Iterator[Sandbox]:
    """Make a sandbox, by default with its own cache; its processes and files end with the block."""
    with tempfile.TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True) as folder:
        box = Sandbox(Path(folder) / "work", cache or Path(folder) / "cache", grace_s)
        box.folder.mkdir()
        try:
            yield box
        finally:
            box.end_all()


def with_own_cache(home: Path) -> Path:
    """Make `home` a separate XDG_CACHE_HOME that contains the user's compiled code."""
    (home / NAME).mkdir(mode=0o700, parents=True)
    for name in (SOURCE, OBJECT_CODE):
        of_user = make_cache_folder(name)
        if of_user is not None:
            (home / NAME / name).symlink_to(of_user)
    return home


def bench(box: Sandbox, *overrides: str, sweep: bool = False) -> list[str]:
    """Return the command of a tiny trial, or of a sweep of trials, measured into the sandbox."""
    flags = ["-m"] if sweep else []
    results = f"results_dir={box.results}"
    return run_module("dynbatch.harness.commands.bench", *flags, *TINY, results, *overrides)


def logged_sweep(box: Sandbox) -> list[str]:
    """Return a sweep of two systems in two rounds that take time and log their measurements."""
    log = f"+system.options.log={LOG}"  # relative, because names of records depend on all options
    return bench(box, *ODD, log, "+system.options.pause_s=0.3,0.301", "rounds=2", sweep=True)


def assert_ended(ended: Ended, codes: Collection[int]) -> None:
    """Fail on a hang, a stack trace, or an unexpected exit code."""
    assert ended.returncode is not None, f"hang: {ended.last_line}"
    for text in (ended.stderr, ended.stdout):
        assert not STACK.search(text), f"stack: {ended.last_line}"
    assert ended.returncode in codes, f"exit code {ended.returncode}: {ended.last_line}"


def assert_one_line(ended: Ended, command: str) -> None:
    """Fail unless one line remains besides those of trials, and starts with the command."""
    lines = [line for line in ended.stderr.splitlines() if line.strip() and line[0] != "["]
    assert len(lines) == 1, f"{len(lines)} lines: {ended.last_line}"
    assert lines[0].startswith(f"{command}: "), lines[0]


def assert_no_survivors(box: Sandbox) -> None:
    """Fail if processes survive the grace time, after killing them."""
    wait_until(lambda: not box.processes(), box.grace_s)
    survivors, printed = box.processes(), []
    for process in survivors:
        with suppress(psutil.Error):
            printed.append(" ".join(process.cmdline())[:200])
    box.end_all()
    assert not survivors, f"{len(survivors)} processes live on: {printed}"


def assert_nothing_left(box: Sandbox, *, temporary: bool = True) -> None:
    """Fail on processes and on partial or empty files, with `temporary` also in TMPDIR."""
    assert_no_survivors(box)
    files = [path for path in box.results.rglob("*") if path.is_file() and not path.is_symlink()]
    left = [path for path in files if ".tmp" in path.suffixes]
    # Locks are empty and hidden, and a log may be empty.
    left += [p for p in files if not (p.name[0] == "." or p.suffix == ".log" or p.stat().st_size)]
    left += box.tmp.iterdir() if temporary and box.tmp.is_dir() else []
    assert not left, f"{len(left)} files are left: {left[0]}"


@dataclass(frozen=True, slots=True)
class Kept:
    """Contents of complete and of superseded records, by path below raw/."""

    complete: Mapping[str, bytes]
    superseded: Mapping[str, bytes]

    @classmethod
    def of(cls, results: Path) -> Kept:
        raw = results / "raw"
        return cls(_read_records(raw, "*/r*.json"), _read_records(raw, "*/superseded/*.json"))

    @property
    def statuses(self) -> list[str]:
        """Statuses of complete records, sorted."""
        return sorted(str(_status(content)) for content in self.complete.values())


def assert_kept(results: Path, before: Kept, expected: Collection[str] = ()) -> None:
    """Fail if a complete record was lost or missing, or a successful one measured again."""
    after = Kept.of(results)
    for name, content in before.complete.items():
        assert name in after.complete, f"lost: {name}"
        is_good = _status(content) == "ok"  # others may be tried again
        assert not is_good or after.complete[name] == content, f"measured twice: {name}"
    good = {name for name, content in after.superseded.items() if _status(content) == "ok"}
    assert not good - set(before.superseded), "measured twice, and the first set aside"
    assert set(expected) <= set(after.complete), "missing"


def find_simultaneous(log: Path) -> tuple[str, str] | None:
    """Return two runs of which each measured before the other's last line, or None.

    Systems of one run take turns. The last word of a line is the number of the run's process.
    """
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    runs = [line.rpartition(" ")[2] for line in lines]
    for at, run in enumerate(runs):
        if at and runs[at - 1] != run and run in runs[:at]:
            return run, runs[at - 1]
    return None


def _read(path: Path) -> str:
    with suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(MAX_TEXT).decode(errors="replace")
    return ""


def _read_records(raw: Path, pattern: str) -> dict[str, bytes]:
    found = {}
    for path in sorted(raw.glob(pattern)):
        with suppress(OSError):
            content = path.read_bytes()
            if _status(content) is not None:
                found[path.relative_to(raw).as_posix()] = content
    return found


def _status(content: bytes) -> str | None:
    try:
        return str(json.loads(content)["status"])
    except (ValueError, KeyError, TypeError):
        return None
