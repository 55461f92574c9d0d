"""What Linux tells of a machine in files below /sys and /proc."""

from __future__ import annotations

from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")


def read_lines(path: Path) -> list[str]:
    text = read_text(path)
    return text.splitlines() if text else []


def read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
