"""What a worker refuses reaches its parent whole, or as one line that says why it does not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.errors import OutputError
from harness.measuring.refusal import Refusal, read_refusal, write_refusal

REFUSAL = Refusal("config", "n_leaves=3 is no power of two")


def test_what_is_written_is_read_where_the_exit_code_agrees(tmp_path: Path) -> None:
    spec_path = tmp_path / "spec.json"
    assert read_refusal(spec_path, REFUSAL.exit_code) is None
    write_refusal(spec_path, REFUSAL)
    assert read_refusal(spec_path, REFUSAL.exit_code) == REFUSAL
    assert read_refusal(spec_path, -9) is None


@pytest.mark.parametrize("content", ["", '{"of": "con', "[]", '{"of": "config"}'])
def test_one_that_is_cut_off_is_told_in_a_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "refusal.json").write_text(content)
    with pytest.raises(OutputError, match="make room") as caught:
        read_refusal(tmp_path / "spec.json", REFUSAL.exit_code)
    assert "\n" not in str(caught.value)
    assert read_refusal(tmp_path / "spec.json", -9) is None


def test_a_full_disk_leaves_one_that_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: object, **__: object) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    write_refusal(tmp_path / "spec.json", REFUSAL)
    with pytest.raises(OutputError, match="make room"):
        read_refusal(tmp_path / "spec.json", REFUSAL.exit_code)
