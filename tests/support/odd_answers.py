"""What a campaign's child answers in tests: rightly, never, with a stack, or by dying."""

from __future__ import annotations

import os
import time
from typing import Any


def answer(question: dict[str, Any]) -> dict[str, Any]:
    if question["do"] == "hang":
        time.sleep(600)
    if question["do"] == "die":
        os._exit(3)
    if question["do"] == "raise":
        raise ValueError("odd")
    print("words that are no answer")
    return {"pid": os.getpid()}
