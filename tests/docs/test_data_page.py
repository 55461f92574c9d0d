"""docs/data.md as a user with a file of one's own follows it: its commands run as printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dynbatch.harness.planning.yaml_files import list_formats
from dynbatch.harness.values.paths import ROOT
from tests.support.adding import sections_of

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
(SECTION,) = sections_of(PAGE)


def test_three_commands_lead_from_a_file_to_a_ranking(tmp_path: Path) -> None:
    for name, text in SECTION.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    assert len(SECTION.commands) == 3
    for command in SECTION.commands:
        done = subprocess.run(
            ["bash", "-c", command.typed],
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{command.typed}\n{done.stdout}"
        assert command.is_answered_by(done.stdout), f"{command.typed}\n{done.stdout}"


def test_the_page_lists_every_format() -> None:
    for name in list_formats():
        assert f"| `{name}` |" in PAGE
