"""Replacement for `bench` in tests of the campaign: it writes two records, with a named fault."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
LATE = [sys.executable, "-c", "import time; time.sleep(1.5); open('measured.log', 'a').write('x')"]


def record(path: Path, word: str = "first") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"status": "ok", "word": word}))
    temporary.replace(path)


def stop(*_: object) -> NoReturn:
    print("bench: stopped by SIGTERM", file=sys.stderr)
    sys.exit(143)


def main(results: Path, fault: str) -> int:
    began = (results / "began").exists()
    results.mkdir(parents=True, exist_ok=True)
    (results / "began").write_text("yes")
    if fault == "leftover":
        subprocess.Popen(SLEEPER, start_new_session=True)
    if fault == "orphan" and not began:
        subprocess.Popen(LATE, start_new_session=True)
    if fault == "hang" and began:
        time.sleep(600)
    first = results / "raw" / "a" / "r0.json"
    if began and fault == "lost":
        first.unlink(missing_ok=True)
        (results / "raw" / "b").mkdir(exist_ok=True)
    if not first.exists() and not (began and fault == "lost"):
        record(first)
    if began and fault == "measured_twice":
        record(first, "second")
    if began and fault == "traceback":
        raise ValueError("odd")
    if began and fault == "fails":
        return 2
    if began and fault == "half_written":
        (results / "raw" / "a" / ".r2.json.17.tmp").touch()
    if began and fault == "set_aside":
        record(results / "raw" / "a" / "superseded" / "r0.5.json")
    if fault == "two_at_once":
        Path("measured.log").write_text("by 1\nby 2\nby 1\n")
    time.sleep(0.4)
    if fault == "missing":
        return 0
    record(results / "raw" / "b" / "r0.json")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
