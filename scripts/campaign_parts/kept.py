"""The records of a folder of results at one moment, to be compared with a later one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.campaign_parts.case import Outcome


@dataclass(frozen=True, slots=True)
class Kept:
    """Complete records and those set aside, each by its path below raw/."""

    complete: Mapping[str, bytes]
    aside: Mapping[str, bytes]

    @classmethod
    def of(cls, results: Path) -> Kept:
        """What is there now; what is no JSON of a record is not complete."""
        raw = results / "raw"
        return cls(_records(raw, "*/r*.json"), _records(raw, "*/superseded/*.json"))

    def status(self, name: str) -> str:
        """The status of a complete record."""
        return str(json.loads(self.complete[name])["status"])

    def fault_against(self, before: Kept) -> Outcome | None:
        """What happened to records that were complete before, where nothing but that may be."""
        for name, content in before.complete.items():
            if name not in self.complete:
                return Outcome("lost", f"{name} was complete and is gone or damaged")
            if self.complete[name] != content:
                return Outcome("measured_twice", f"{name} was complete and is another")
        again = [name for name, content in self.aside.items() if _status(content) == "ok"]
        new = sorted(set(again) - set(before.aside))
        return Outcome("measured_twice", f"{new[0]} was good and is set aside") if new else None


def _records(raw: Path, pattern: str) -> dict[str, bytes]:
    found = {}
    for path in sorted(raw.glob(pattern)):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if _status(content) is not None:
            found[path.relative_to(raw).as_posix()] = content
    return found


def _status(content: bytes) -> str | None:
    try:
        return str(json.loads(content)["status"])
    except (ValueError, KeyError, TypeError):
        return None


def litter(results: Path) -> list[str]:
    """Files that are half-written or empty; locks are empty and hidden."""
    if not results.is_dir():
        return []
    every = (path for path in results.rglob("*") if path.suffix != ".log")  # a log may be empty
    files = [path for path in every if path.is_file() and not path.is_symlink()]
    return sorted(
        path.relative_to(results).as_posix()
        for path in files
        if ".tmp" in path.suffixes or (not path.name.startswith(".") and not path.stat().st_size)
    )
