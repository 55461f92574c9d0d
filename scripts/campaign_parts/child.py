"""A child process that answers many small questions, and is begun anew where one ends it.

    python -m scripts.campaign_parts.child MODULE     # whose function `answer` is asked

A question and its answer are a line of JSON each.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scripts.campaign_parts.place import Place, python

MEMORY_BYTES = 6 * 2**30  # of addresses: what asks for more gets an error, not the machine


class Child:
    """Asks; a question that has no answer in time ends the child."""

    def __init__(self, module: str, place: Place) -> None:
        self._module, self._place = module, place
        self._process: subprocess.Popen[str] | None = None

    def ask(self, question: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the answer; {"died": exit code} or {"hung": seconds} where there is none."""
        process = self._process = self._process or self._begun()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], limit_s)
        line = process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        returncode = process.wait() if ready else None
        self.end()
        return {"died": returncode} if ready else {"hung": limit_s}

    def _begun(self) -> subprocess.Popen[str]:
        self._place.tmp.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            python("scripts.campaign_parts.child", self._module),
            cwd=self._place.folder,
            env=self._place.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the child; the next question begins another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._place.end_all()
        self._process = None


@contextmanager
def a_child(module: str, place: Place) -> Iterator[Child]:
    """A child that ends with the block."""
    child = Child(module, place)
    try:
        yield child
    finally:
        child.end()


def main(module: str) -> int:
    """Answer until there is no question left; what fails is answered with its stack."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints does not answer
    answer = importlib.import_module(module).answer
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception:
            found = {"traceback": traceback.format_exc(limit=-3)}
        answers.write(json.dumps(found) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
