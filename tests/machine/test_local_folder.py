"""A folder of this machine alone: ours, closed to others, and never on a disk of the network."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from harness.errors import BenchError
from harness.machine import folders as module
from harness.machine.folders import local_folder


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(module, "MEMORY", folder)
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    return folder


def test_it_is_made_in_memory_and_closed_to_others(memory: Path) -> None:
    folder = local_folder()
    assert folder.parent == memory
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert local_folder() == folder


def test_one_that_others_may_write_to_is_not_taken(memory: Path, tmp_path: Path) -> None:
    local_folder().chmod(0o777)
    with pytest.raises(BenchError) as caught:
        local_folder()
    assert "may be written by others" in str(caught.value)
    assert "\n" not in str(caught.value)
    (tmp_path / "temporary").mkdir()
    assert local_folder().parent == tmp_path / "temporary"
