"""What is to be counted, and by which code: one policy on the mini-batch of one request."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.contracts.policy import is_learned
from harness.counts.request import Request
from harness.machine.facts import cpu_model
from harness.records.record import now_text

# Of a request, beside its trial, what changes the counts.
_OWN = ("granularity", "outputs", "offset", "n_following")


@dataclass(frozen=True, slots=True)
class PlannedCount:
    """One policy of a request, and the hash of the code that counts it."""

    request: Request
    policy: str
    source_sha256: str

    @property
    def count_id(self) -> str:
        """Path-safe text that names the count, ending in a hash of all that it is asked for."""
        spec = replace(self.request.spec, policy=self.policy)
        identity = spec.identity | {name: getattr(self.request, name) for name in _OWN}
        if is_learned(self.policy):
            identity["learn_offset"] = self.request.learn_offset
        text = json.dumps(identity, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        names = ("count", self.policy, spec.model, spec.dataset, spec.split)
        more = (f"bs{spec.batch_size}", self.request.granularity, digest)
        return "-".join(re.sub(r"[^A-Za-z0-9_.]", "_", part) for part in (*names, *more))

    def labels(self) -> dict[str, Any]:
        """The fields of CountLabels, but for the status."""
        request, spec = self.request, self.request.spec
        return {
            **{name: getattr(spec, name) for name in ("model", "dataset", "split", "batch_size")},
            **{name: getattr(request, name) for name in ("granularity", "outputs", "offset")},
            "policy": self.policy,
            "learning": spec.learning if is_learned(self.policy) else None,
            "cpu": cpu_model(),
            "count_id": self.count_id,
            "source_sha256": self.source_sha256,
            "counted_at": now_text(),
        }

    def record_path(self, folder: Path) -> Path:
        """Where its record goes."""
        return folder / f"{self.count_id}.json"
