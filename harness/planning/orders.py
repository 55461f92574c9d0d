"""Orders: what a run of the pipeline has one job do, in a file that the job reads.

The plan is made once; on a cluster, where Snakemake starts twice for each job, on the head node.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import BenchError, ConfigError
from harness.machine.files import read_regular
from harness.planning.nodes import Nodes
from harness.planning.run_plan import Step
from harness.records.files import replace_whole
from harness.trials.sources import hash_contents
from harness.trials.spec import TrialSpec
from harness.values.places import ROOT

FOLDER = ".orders"  # below the results
MEASURED = ("harness", "systems", "datasets")  # folders of code that a node runs


@dataclass(frozen=True, slots=True)
class Order:
    """Either rounds of trials, in groups that are measured in one turn each, or words of one count.

    nodes: what measures; None: this machine. code: see code_of_this_machine; of nodes. specs: the
    trials of the turns by name. running: of a trial that is screened, those that run against it,
    itself among them. shares_machine: whether a count may run beside others that do, as nothing of
    it is timed.
    """

    results_dir: Path
    nodes: Nodes | None = None
    code: str = ""
    turns: tuple[tuple[Step, ...], ...] = ()
    specs: Mapping[str, TrialSpec] = field(default_factory=dict)
    running: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    count: tuple[str, ...] = ()
    shares_machine: bool = False

    def write(self, path: Path) -> None:
        """Leave it where its job finds it. Raises OutputError where that cannot be done."""
        content = {
            "results_dir": str(self.results_dir),
            "nodes": None if self.nodes is None else self.nodes.to_dict(),
            "code": self.code,
            "turns": self.turns,
            "specs": {name: spec.to_dict() for name, spec in self.specs.items()},
            "running": dict(self.running),
            "count": self.count,
            "shares_machine": self.shares_machine,
        }
        replace_whole(path, json.dumps(content))


def order_path(results_dir: Path | str, name: str) -> Path:
    """Where the order of a job lies; the pipeline gives a wildcard for its name."""
    return Path(results_dir) / FOLDER / f"{name}.json"


def done_path(results_dir: Path | str, name: str) -> Path:
    """Return the file that says that a job is done; the pipeline gives a wildcard for its name."""
    return Path(results_dir) / "measured" / f"{name}.json"


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
    nodes = content["nodes"]
    return Order(
        results_dir=Path(content["results_dir"]),
        nodes=None if nodes is None else Nodes(**nodes),
        code=content["code"],
        turns=tuple(tuple(Step(*step) for step in steps) for steps in content["turns"]),
        specs={name: TrialSpec.from_dict(values) for name, values in content["specs"].items()},
        running={name: tuple(others) for name, others in content["running"].items()},
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
