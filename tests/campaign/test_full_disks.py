"""Full disks and outputs that cannot be written, during a run.

A command ends with one line and exit code 1, complete records remain, there are no partial files,
and the same command resumes once there is space.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sandbox import (
    LOG,
    Ended,
    Kept,
    Sandbox,
    assert_ended,
    assert_kept,
    assert_nothing_left,
    campaign,
    examples,
    logged_sweep,
    sandbox,
)

DISK_BYTES = 8 * 2**20


def assert_goes_on(box: Sandbox, first: Ended, before: Kept, sweep_records: list[str]) -> None:
    """Fail unless a command ended as required and completes now that there is space."""
    (box.folder / LOG).unlink(missing_ok=True)
    assert_ended(first, (0, 1))
    if first.returncode == 1:
        lines = [line for line in first.stderr.splitlines() if line.startswith("bench: ")]
        assert lines, f"exit code 1 without a reason; {first.last_line}"
    assert_nothing_left(box)
    assert_ended(box.run(logged_sweep(box)), (0,))
    assert_kept(box.results, before, sweep_records)
    assert_nothing_left(box)


@contextmanager
def small_disk(folder: Path, n_free: int) -> Iterator[Path]:
    """Mount a tmpfs; yield the file that fills it except for a few pages."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (folder / ".ballast").write_bytes(b"\0" * (DISK_BYTES - n_free))
        yield folder / ".ballast"
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


@campaign
@pytest.mark.parametrize("disk", ["results", "tmp", "cache"])
@examples(1, 3)
@given(n_pages=st.integers(0, 12))  # free pages on a tmpfs
def test_a_full_disk(cache: Path, sweep_records: list[str], disk: str, n_pages: int) -> None:
    with sandbox(None if disk == "cache" else cache) as box:
        folder = box.cache if disk == "cache" else box.folder / disk
        with small_disk(folder, 4096 * n_pages) as ballast:
            first = box.run(logged_sweep(box))
            before = Kept.of(box.results)
            ballast.unlink()
            assert_goes_on(box, first, before, sweep_records)
            box.end_all()


@campaign
@pytest.mark.parametrize("target", [">&-", ">/dev/full"])
def test_standard_output(cache: Path, sweep_records: list[str], target: str) -> None:
    with sandbox(cache) as box:
        first = box.run(["sh", "-c", f'exec "$@" {target}', "sh", *logged_sweep(box)])
        assert_goes_on(box, first, Kept.of(box.results), sweep_records)
