"""`bench-schedule`: how many batches each policy makes of one mini-batch, and how fast it is."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from datasets.base import load_corpus
from harness.argument_parser import OneLineParser
from harness.config import Composer, spec_of
from harness.counting import BatchCounts, count_batches
from harness.errors import BenchError, ConfigError
from harness.graph import Graph, MiniBatch
from harness.models.base import Model
from harness.models.operator_graph import operator_graph
from harness.models.released import released_graph
from harness.policies import load_policy, policy_names
from harness.trial import TrialSpec
from harness.workload import build_model

GRANULARITIES = ("vertex", "operator")
PICTURES = (".pdf", ".png", ".svg")
HEADERS = {
    "n_vertices": "vertices",
    "n_batches": "batches",
    "lower_bound": "bound",
    "n_nodes_ed": "nodes (ED)",
    "n_batches_ed": "batches (ED)",
    "lower_bound_ed": "bound (ED)",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What to schedule: a trial's model and data, and the keys that only this command has."""

    spec: TrialSpec
    policies: tuple[str, ...]
    offset: int
    granularity: str

    @property
    def title(self) -> str:
        """The mini-batch in words."""
        spec, last = self.spec, self.offset + self.spec.batch_size - 1
        return (
            f"{spec.model}, {spec.dataset} {spec.split}, instances {self.offset} to {last},"
            f" {self.granularity} granularity"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code (1 after a printed line for an error of the user)."""
    try:
        flags = _parser().parse_args(arguments)
        request = parse_request(flags.settings)
        drawing = None if flags.draw is None else _drawing_for(flags.draw)
        policies = {name: load_policy(name) for name in request.policies}
        model, mini_batch = load_mini_batch(request)
        graph = _graph(request, model, mini_batch)
        if drawing is not None:
            schedules = {name: policy(graph) for name, policy in policies.items()}
            drawing.draw_schedules(graph, schedules, flags.draw, request.title)
        released = released_graph(model, mini_batch)
        counts = [count_batches(name, policy, graph, released) for name, policy in policies.items()]
    except BenchError as error:
        print(f"bench-schedule: {error}", file=sys.stderr)
        return 1
    if flags.json:
        print(json.dumps([dataclasses.asdict(row) for row in counts], indent=2))
    else:
        print("\n".join([request.title, "", *_table(counts)]))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="bench-schedule",
        description=__doc__,
        epilog="Columns with (ED) count the graph that ED-Batch's release makes of the mini-batch,"
        " get and parameter nodes included.",
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="key=value",
        help="model, dataset, split, batch_size, hidden_size and all other keys of `bench`; also"
        " policy=A,B (all), offset=N (0: the first N instances of the file's order are skipped),"
        " granularity=vertex|operator (vertex)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list, not a table")
    parser.add_argument(
        "--draw", type=Path, metavar="FILE", help=f"draw the batched graph ({', '.join(PICTURES)})"
    )
    return parser


def parse_request(settings: Sequence[str]) -> Request:
    """Read key=value arguments; raises ConfigError for what is no key or no allowed value."""
    own = {"policy": ",".join(policy_names()), "offset": "0", "granularity": "vertex"}
    overrides = ["system=null"]  # no framework takes part
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"{setting} is not understood; give key=value, such as batch_size=8")
        if key in own:
            own[key] = value
        else:
            overrides.append(setting)
    if not own["offset"].isdecimal():
        raise ConfigError(
            f"offset={own['offset']} is not allowed; give a whole number of at least 0"
        )
    if own["granularity"] not in GRANULARITIES:
        raise ConfigError(
            f"granularity={own['granularity']} is unknown; choose one of {', '.join(GRANULARITIES)}"
        )
    return Request(
        spec=spec_of(Composer().compose(overrides)),
        policies=tuple(own["policy"].split(",")),
        offset=int(own["offset"]),
        granularity=own["granularity"],
    )


def load_mini_batch(request: Request) -> tuple[Model, MiniBatch]:
    """Build the model and the mini-batch of the file's order that begins at the offset.

    Raises ConfigError for too few instances, DataError for unusable data.
    """
    spec = request.spec
    corpus = load_corpus(spec.loader, spec.split, Path(spec.data_root), **spec.dataset_options)
    end = request.offset + spec.batch_size
    if end > len(corpus.instances):
        raise ConfigError(
            f"offset={request.offset} and batch_size={spec.batch_size} need {end} instances;"
            f" {corpus.name} ({corpus.split}) has {len(corpus.instances)}"
        )
    model = build_model(spec, corpus.vocab_size, corpus.n_classes)
    return model, model.mini_batch(corpus.instances[request.offset : end])


def _graph(request: Request, model: Model, mini_batch: MiniBatch) -> Graph:
    if request.granularity == "operator":
        return operator_graph(model, mini_batch)
    return mini_batch.graph


def _drawing_for(picture: Path) -> ModuleType:
    """Return the module that draws; only a picture needs matplotlib, which may not be installed."""
    if picture.suffix not in PICTURES:
        raise ConfigError(f"--draw {picture}: no such format; end it in {', '.join(PICTURES)}")
    try:
        return importlib.import_module("plots.draw_graph")
    except ModuleNotFoundError as error:
        raise ConfigError(f"--draw needs {error.name}; install the extra `plots`") from None


def _table(counts: Sequence[BatchCounts]) -> list[str]:
    """Align one line a policy, times in milliseconds."""
    rows = [["policy", *HEADERS.values(), "schedule (ms)"]]
    for row in counts:
        numbers = [str(getattr(row, name)) for name in HEADERS]
        rows.append([row.policy, *numbers, f"{row.schedule_s * 1e3:.3f}"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


if __name__ == "__main__":
    sys.exit(main())
