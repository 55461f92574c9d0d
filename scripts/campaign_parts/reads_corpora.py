"""What a child answers about corpora: whether the files of a folder are taken, and as what."""

from __future__ import annotations

import hashlib
import traceback
from pathlib import Path
from typing import Any

from harness.contracts.corpus import inputs_sha256, load_corpus
from harness.errors import BenchError


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Load all instances; {"refused": line}, {"traceback": text} or what was read."""
    try:
        corpus = load_corpus(question["loader"], "train", Path(question["root"]), sha256=None)
        instances = corpus.instances[:]
    except BenchError as error:
        return {"refused": str(error)}
    except Exception:
        return {"traceback": traceback.format_exc(limit=-3)}
    sizes = repr(sorted(corpus.sizes.items())).encode()
    content = inputs_sha256([instances]) + hashlib.sha256(sizes).hexdigest()
    return {"content": content, "n_read": len(instances) + sum(corpus.skipped.values())}
