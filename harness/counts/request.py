"""Requests of `bench-schedule`: a trial's model and data, its own keys, and sweeps.

A sweep covers several mini-batches: some keys take values separated by commas.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynbatch.harness.contracts.corpus import FILE_ORDER, KEEP, hash_inputs
from dynbatch.harness.contracts.model import Model, find_model_class, trace_functions
from dynbatch.harness.contracts.policy import (
    check_policy_name,
    format_workload_name,
    is_learned,
    list_policy_names,
)
from dynbatch.harness.counts.counting import GraphPair
from dynbatch.harness.errors import BenchError, ConfigError, suggest_name
from dynbatch.harness.granularity.operators import build_operator_graph
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.granularity.vertices import add_output_vertices, cut_output
from dynbatch.harness.machine.facts import read_cpu_model
from dynbatch.harness.planning.config import BenchConfig, Composer, resolve_spec
from dynbatch.harness.planning.overrides import read_settings
from dynbatch.harness.records.record import format_now
from dynbatch.harness.records.reuse import has_checksums, identify_corpus, load_identified
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import build_model
from dynbatch.harness.values.checked import check_count, check_path_text, find_key_types
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.values.paths import PACKAGE

CHOICES = {"granularity": ("vertex", "operator"), "outputs": ("vertices", "stage")}
NUMBERS = ("offset", "learn_offset", "n_following")
PATHS = ("save_policy", "out", "records")
# Keys of `bench` without influence on counts.
NOT_COUNTED = ("system", "experiment", "scale", "rounds", "round", "cpu", "results_dir")
MAX_DIGITS = 9
MAX_FOLLOWING = 100_000  # each of these mini-batches is scheduled
# Fields of a request, in addition to its trial, that change the counts.
_OWN = ("granularity", "outputs", "offset", "n_following")
# The first changes slowest.
SWEPT = ("model", "dataset", "split", "batch_size", "granularity", "learning.seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Request to count the batches of policies on one mini-batch.

    Attributes:
        offset: First instance, in the order of the file.
        learn_offset: First instance of the mini-batch on which learned policies learn.
        n_following: Number of mini-batches after the first that are counted, too.
        out: Path to which the rows are written, as JSON or CSV.
        force: Whether to count again instead of reusing records.
        records_invalid_data: Whether invalid data yields a row instead of an error.
    """

    spec: TrialSpec
    policies: tuple[str, ...]
    offset: int
    learn_offset: int
    n_following: int
    granularity: str
    outputs: str
    save_policy: Path | None
    out: Path | None
    records: Path | None
    force: bool
    records_invalid_data: bool

    @property
    def title(self) -> str:
        spec, last = self.spec, self.offset + self.spec.batch_size - 1
        end = f"at most {last}" if spec.timing.last == KEEP else str(last)
        parts = [
            f"{spec.model}, {spec.dataset} {spec.split}, instances {self.offset} to {end}",
            f"{self.granularity} granularity",
        ]
        if self.granularity != "operator":  # where they are vertices
            parts.append(f"outputs as {'vertices' if self.outputs == 'vertices' else 'a stage'}")
        if spec.learning.seed and any(map(is_learned, self.policies)):
            parts.append(f"seed {spec.learning.seed}")
        return ", ".join(parts)

    @property
    def workload(self) -> str:
        return format_workload_name(self.spec.model, self.granularity, self.outputs)

    def select_learned_policy(self, purpose: str) -> str:
        learned = [name for name in self.policies if is_learned(name)]
        if len(learned) != 1:
            raise ConfigError(
                f"{purpose} needs exactly one learned policy, but policy="
                f"{','.join(self.policies)} has {len(learned)}; set one, such as policy=fsm_sort"
            )
        return learned[0]


def parse_request(settings: Sequence[str], composer: Composer | None = None) -> Request:
    """Parse key=value arguments of one mini-batch.

    Args:
        composer: Composer to share among requests, which is faster than a new one for each.
    """
    own, overrides = _split_settings(settings)
    for key in NUMBERS:
        if not (own[key].isdecimal() and len(own[key]) <= MAX_DIGITS):
            raise ConfigError(
                f"{key}={own[key]} is not allowed: expected a whole number of at least 0 with at"
                f" most {MAX_DIGITS} digits"
            )
    check_count("n_following", int(own["n_following"]), 0, MAX_FOLLOWING)
    for key, choices in CHOICES.items():
        if own[key] not in choices:
            raise ConfigError(f"{key}={own[key]} is unknown; choose one of {', '.join(choices)}")
    policies = tuple(dict.fromkeys(own["policy"].split(",")))
    for name in policies:
        check_policy_name(name)
    composer = composer or Composer()
    # Without a framework.
    config = composer.compose_config({"system": "null"} | read_settings(overrides))
    request = Request(
        spec=resolve_spec(config, conf_dir=composer.conf_dir, needs_labels=False),
        policies=policies,
        granularity=own["granularity"],
        outputs=own["outputs"],
        offset=int(own["offset"]),
        learn_offset=int(own["learn_offset"]),
        n_following=int(own["n_following"]),
        save_policy=_parse_path(own["save_policy"]),
        out=_parse_path(own["out"]),
        records=_parse_path(own["records"]),
        force=config.force,
        records_invalid_data=config.on_invalid_data == "record",
    )
    if request.save_policy is not None:
        request.select_learned_policy("save_policy")
    if request.spec.learning.file is not None:
        request.select_learned_policy("learning.file")
    return request


def _parse_path(text: str) -> Path | None:
    return Path(text) if text else None


def _split_settings(settings: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of bench-schedule's own keys, and the settings of trials."""
    own = {"policy": ",".join(list_policy_names()), "offset": "0", "n_following": "0"}
    own |= {"learn_offset": "", **dict.fromkeys(PATHS, "")}
    own |= {key: choices[0] for key, choices in CHOICES.items()}
    others = []
    for setting in settings:
        key, _, value = setting.partition("=")
        if key in PATHS:
            check_path_text(key, value)
        if key == "order":
            if value != FILE_ORDER:
                raise ConfigError(
                    f"{setting} is not allowed: expected {FILE_ORDER}, the order of counts; remove"
                    " it"
                )
            continue
        if key in NOT_COUNTED:
            raise ConfigError(f"{setting}: counts have no {key}; remove it")
        if key in own:
            own[key] = value
            if not value:
                raise ConfigError(f"{key} is empty; set a value, or remove {key}")
        elif key not in find_key_types(BenchConfig) and (close := suggest_name(key, own)):
            raise ConfigError(f"{key} is not in the configuration{close}")
        else:
            others.append(setting)
    own["learn_offset"] = own["learn_offset"] or own["offset"]
    return own, others


def parse_requests(settings: Sequence[str], composer: Composer | None = None) -> list[Request]:
    """Parse key=value arguments whose values may be separated by commas; see expand_points.

    Args:
        composer: Composer to share among sweeps, which is faster than a new one for each.
    """
    composer = composer or Composer()
    return [parse_request(point, composer) for point in expand_points(settings, composer)]


def expand_points(settings: Sequence[str], composer: Composer) -> list[list[str]]:
    """Return the settings of each mini-batch: one for every combination of listed values.

    Models and datasets are combined only if they have the same kind of instances.

    Raises:
        ConfigError: A model or a dataset fits none of the others.
    """
    listed: dict[str, list[str]] = {}
    for setting in settings:
        key, _, values = setting.partition("=")
        if key in SWEPT and "," in values:
            listed[key] = list(dict.fromkeys(values.split(",")))
    keys = [key for key in SWEPT if key in listed]
    rest = [setting for setting in settings if setting.partition("=")[0] not in listed]
    points = [
        [*rest, *(f"{key}={value}" for key, value in zip(keys, values, strict=True))]
        for values in itertools.product(*(listed[key] for key in keys))
    ]
    if not listed.keys() & {"model", "dataset"}:
        return points
    return _select_fitting(points, listed, composer)


def _select_fitting(
    points: list[list[str]], listed: Mapping[str, list[str]], composer: Composer
) -> list[list[str]]:
    kept = []
    for point in points:
        chosen = read_settings(t for t in point if t.startswith(("model=", "dataset=")))
        config = composer.compose_config({"system": "null"} | chosen)
        if find_model_class(config.model.model).instance_kind == config.dataset.instance_kind:
            kept.append(point)
    for key in ("model", "dataset"):
        for value in listed.get(key, ()):
            if not any(f"{key}={value}" in point for point in kept):
                other = "dataset" if key == "model" else "model"
                raise ConfigError(
                    f"{key}={value} and every given {other} differ in the kind of instances;"
                    f" remove it, or add a {other} of its kind"
                )
    return kept


@dataclass(frozen=True, slots=True)
class PlannedCount:
    """Count of one policy of a request, with the hash of the code that performs it."""

    request: Request
    policy: str
    source_sha256: str

    @property
    def count_id(self) -> str:
        """Path-safe name of the count that ends in a hash of its settings."""
        spec = replace(self.request.spec, policy=self.policy)
        identity = spec.identity | {name: getattr(self.request, name) for name in _OWN}
        if is_learned(self.policy):
            identity["learn_offset"] = self.request.learn_offset
        text = json.dumps(identity, sort_keys=True, default=str)
        text = text.replace(f'"{PACKAGE}.', '"')  # as in counts from before modules had this name
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        names = ("count", self.policy, spec.model, spec.dataset, spec.split)
        more = (f"bs{spec.batch_size}", self.request.granularity, digest)
        return "-".join(re.sub(r"[^A-Za-z0-9_.]", "_", part) for part in (*names, *more))

    @property
    def own_data_sha256(self) -> str | None:
        """Hash of instances from files without checksums; None for other data, "" if unreadable."""
        spec = self.request.spec
        if has_checksums(spec):
            return None
        try:
            return _hash_own(*identify_corpus(spec))
        except BenchError:
            return ""  # the count itself reports the reason

    def build_request_labels(self) -> dict[str, Any]:
        """Return the fields of CountLabels that determine the count."""
        request, spec = self.request, self.request.spec
        return {
            **{name: getattr(spec, name) for name in ("model", "dataset", "split", "batch_size")},
            **{name: getattr(request, name) for name in ("granularity", "outputs", "offset")},
            "policy": self.policy,
            "model_options": dict(spec.model_options),
            "learning": spec.learning if is_learned(self.policy) else None,
        }

    def build_labels(self) -> dict[str, Any]:
        """Return the fields of CountLabels except the status."""
        return {
            **self.build_request_labels(),
            "cpu": read_cpu_model(),
            "count_id": self.count_id,
            "source_sha256": self.source_sha256,
            "own_data_sha256": self.own_data_sha256,
            "counted_at": format_now(),
        }

    def build_record_path(self, folder: Path) -> Path:
        return folder / f"{self.count_id}.json"


_load_cached_corpus = functools.cache(load_identified)  # a sweep uses a corpus many times


@functools.cache
def _hash_own(loader: str, split: str, root: str, options: str) -> str | None:
    corpus = _load_cached_corpus(loader, split, root, options)
    return None if corpus.generated else hash_inputs([corpus.instances])


class GraphSource:
    """Source of a request's mini-batches as graphs."""

    def __init__(self, request: Request) -> None:
        self.request, spec = request, request.spec
        self.corpus = _load_cached_corpus(*identify_corpus(spec))
        self.model: Model = build_model(spec, self.corpus.sizes)

    def build_at(self, offset: int) -> GraphPair:
        """Return the mini-batch that starts at an instance, in the order of the file."""
        size = self.request.spec.batch_size
        is_full = self.request.spec.timing.last != KEEP
        n_needed = offset + (size if is_full else 1)
        if n_needed > len(self.corpus.instances):
            needed = f" and batch_size={size} need" if is_full else " needs"
            raise ConfigError(
                f"offset={offset}{needed} {n_needed} instances, but {self.corpus.name}"
                f" ({self.corpus.split}) has {len(self.corpus.instances)}; set smaller values"
            )
        return self._build_graphs(self.corpus.instances[offset : offset + size])

    def build_following(self) -> list[GraphPair]:
        """Return the mini-batches after the first one, as draw_mini_batches draws them.

        After its end the file starts again, unless timing.last=keep: then they end with the file.
        """
        instances, size = self.corpus.instances, self.request.spec.batch_size
        first, n = self.request.offset + size, self.request.n_following
        end = first + n * size
        if self.request.spec.timing.last == KEEP:
            end = min(end, len(instances))
        chosen = [instances[index % len(instances)] for index in range(first, end)]
        return [self._build_graphs(chosen[k : k + size]) for k in range(0, len(chosen), size)]

    def _build_graphs(self, instances: Sequence[object]) -> GraphPair:
        mini_batch = self.model.mini_batch(instances)
        released = build_released_graph(self.model, mini_batch)
        return GraphPair(plain=self._build_plain(mini_batch), released=released)

    def _build_plain(self, mini_batch: MiniBatch) -> Graph:
        if self.request.granularity == "operator":
            return build_operator_graph(self.model, mini_batch)
        if self.request.outputs == "stage":
            return mini_batch.graph
        has_loss = len(cut_output(trace_functions(self.model)["output"])) > 1
        return add_output_vertices(mini_batch, has_loss).graph
