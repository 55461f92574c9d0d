"""A file that is no Python is told in one line that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.machine.source_code import code_sha256, compiled_in, mentioned


@pytest.mark.parametrize("text", ["x = 1\ndef schedule(graph)\n    pass\n", "x = 1\ndef (\n"])
def test_a_file_that_is_no_python_is_named_with_its_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    for read in (
        lambda: code_sha256(path),
        lambda: mentioned(path, "broken"),
        lambda: compiled_in(path, "broken"),
    ):
        with pytest.raises(ConfigError, match=r"^[^\n]*broken\.py, line 2, is no Python: [^\n]*$"):
            read()
