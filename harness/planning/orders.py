"""Orders: what the head node of a cluster has one job do, in a file that its node reads.

The plan is made once, on the head node. A job there starts Snakemake twice, which would compose
thousands of trials each time only to find the few that it measures.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import BenchError, ConfigError
from harness.machine.files import read_regular
from harness.planning.nodes import Nodes
from harness.records.files import replace_whole
from harness.trials.sources import hash_contents
from harness.trials.spec import TrialSpec
from harness.values.places import ROOT

FOLDER = ".orders"  # below the results
MEASURED = ("harness", "systems", "datasets")  # folders of code that a node runs


@dataclass(frozen=True, slots=True)
class Order:
    """Either trials, in groups that are measured in one turn each, or the words of one count.

    trials: each with its round. code: see code_of_this_machine. shares_machine: whether it may run
    beside others that do, as nothing of it is timed.
    """

    results_dir: Path
    nodes: Nodes
    code: str
    trials: tuple[tuple[TrialSpec, ...], ...] = ()
    count: tuple[str, ...] = ()
    shares_machine: bool = False

    def write(self, path: Path) -> None:
        """Leave it where a node finds it. Raises OutputError where that cannot be done."""
        content = {
            "results_dir": str(self.results_dir),
            "nodes": self.nodes.to_dict(),
            "code": self.code,
            "trials": [[spec.to_dict() for spec in group] for group in self.trials],
            "count": list(self.count),
            "shares_machine": self.shares_machine,
        }
        replace_whole(path, json.dumps(content))


def order_path(results_dir: Path | str, name: str) -> Path:
    """Where the order of a job lies; the pipeline gives a wildcard for its name."""
    return Path(results_dir) / FOLDER / f"{name}.json"


def read_order(path: Path) -> Order:
    """Read an order; raises BenchError where this machine has none that can be read."""
    try:
        content = json.loads(read_regular(path))
        return _order_of(content)
    except OSError as error:
        raise BenchError(
            f"{platform.node()} does not see {path} ({error.strerror}), which the head node wrote:"
            " results_dir has to be a folder that the head node and all nodes share"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} is no order ({error}); begin the run again") from error


def _order_of(content: Mapping[str, Any]) -> Order:
    groups: Sequence[Sequence[Mapping[str, Any]]] = content["trials"]
    return Order(
        results_dir=Path(content["results_dir"]),
        nodes=Nodes(**content["nodes"]),
        code=content["code"],
        trials=tuple(tuple(TrialSpec.from_dict(one) for one in group) for group in groups),
        count=tuple(content["count"]),
        shares_machine=content["shares_machine"],
    )


def code_of_this_machine() -> str:
    """Python's version and a short hash of all code that may run on a node, as they are here."""
    files = {
        path.relative_to(ROOT).as_posix(): path
        for folder in MEASURED
        for path in (ROOT / folder).rglob("*.py")
    }
    return f"{platform.python_version()}-{hash_contents(files)[:16]}"


def check_code(code: str, node: str) -> None:
    """Raise ConfigError where a node's code is not this machine's."""
    ours = code_of_this_machine()
    if code != ours:
        raise ConfigError(
            f"{node} runs another version of the code or of Python ({code}, here {ours}): let all"
            " use one checkout and one environment in a folder that they share"
        )
