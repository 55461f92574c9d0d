"""From records to numbers: what one trial cost over its rounds, in the units of an artefact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.planning.grid import Settings
from harness.records.beside import Rounds
from harness.records.record import Record
from harness.records.stats import Summary, paired_ratios, summarise
from plots.numbers.rates import flop_per_byte, gbyte_per_s, gflop_per_s, graph_ms

# Builds slower than their project's best: a fact of `versions`, what it begins with, and the
# warning that ratios to such a build bear. DyNet's wheel has no BLAS.
WEAK_BUILDS = (("dynet_build", "wheel", "dynet_wheel"),)
NOT_MEASURED, NOT_PLANNED, NOT_SEPARABLE = "missing", "not run", "not told"


@dataclass(frozen=True, slots=True)
class Point:
    """One trial of a grid with the records of its rounds (None: no record was found).

    is_called_off: whether rounds are no part of it, in which it was too far behind to go on.
    """

    settings: Settings
    records: tuple[Record | None, ...]
    is_called_off: bool = False

    @property
    def status(self) -> str:
        """The first status that is not ok, if any: a number stands on all its rounds."""
        statuses = [NOT_MEASURED if r is None else r.status for r in self.records]
        return next((status for status in statuses if status != "ok"), "ok")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Names of all warnings of its rounds, sorted."""
        return tuple(sorted({name for r in self.records if r is not None for name in r.warnings}))

    @property
    def ratio_warnings(self) -> tuple[str, ...]:
        """Its warnings, and what else a ratio to another system must be doubted for."""
        builds = {
            warning
            for fact, beginning, warning in WEAK_BUILDS
            for r in self.records
            if r is not None and r.versions.get(fact, "").startswith(beginning)
        }
        return tuple(sorted({*self.warnings, *builds}))


def point_of(settings: Settings, rounds: Rounds) -> Point:
    """A trial with those of its rounds that count: none at the end that it was called off for."""
    statuses = [None if record is None else record.status for record in rounds]
    while statuses and statuses[-1] == "called_off":
        statuses.pop()
    return Point(settings, rounds[: len(statuses)], is_called_off=len(statuses) < len(rounds))


def epoch_s(record: Record, n_instances: int) -> float | None:
    """Seconds per epoch of that many instances, extrapolated from the measured mini-batches."""
    return n_instances / record.instances_per_s if record.instances_per_s else None


def construction_s(record: Record, n_instances: int) -> float | None:
    """Seconds per epoch of graph work: construct, and schedule where the system tells it.

    Cavs counts reading the graphs only; schedule is included so that no system hides work.
    """
    construct_s = record.phases_s.get("construct")
    if construct_s is None or not record.n_instances or not record.n_mini_batches:
        return None
    per_mini_batch = construct_s + (record.phases_s.get("schedule") or 0.0)
    mini_batches_per_epoch = n_instances * record.n_mini_batches / record.n_instances
    return per_mini_batch * mini_batches_per_epoch


def computation_s(record: Record, n_instances: int) -> float | None:
    """Seconds per epoch of everything but graph work, so that both add up to the epoch."""
    whole, graph = epoch_s(record, n_instances), construction_s(record, n_instances)
    return None if whole is None or graph is None else max(0.0, whole - graph)


def moving_s(record: Record, n_instances: int) -> float | None:
    """Seconds per epoch of moving data forward and backward, where a trial was run to tell it."""
    if record.moving_share is None or not record.n_instances or not record.n_mini_batches:
        return None
    phases = (record.phases_s.get("forward"), record.phases_s.get("backward"))
    per_instance = record.n_mini_batches / record.n_instances
    return n_instances * per_instance * record.moving_share * sum(s for s in phases if s)


def construction_percent(record: Record, n_instances: int) -> float | None:
    """Graph work as a share of the epoch, in percent."""
    whole, graph = epoch_s(record, n_instances), construction_s(record, n_instances)
    return None if not whole or graph is None else 100.0 * graph / whole


def throughput(record: Record, _n_instances: int = 0) -> float | None:
    """Instances per second."""
    return record.instances_per_s


def mini_batch_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds per mini-batch of all that is timed."""
    if not record.instances_per_s or not record.n_instances or not record.n_mini_batches:
        return None
    return 1e3 * record.n_instances / record.n_mini_batches / record.instances_per_s


def n_batches(record: Record, _n_instances: int = 0) -> float | None:
    """Batches per mini-batch."""
    return record.n_batches


def over_bound(record: Record, _n_instances: int = 0) -> float | None:
    """Batches over as many as no policy gets below."""
    return (
        record.n_batches / record.lower_bound if record.n_batches and record.lower_bound else None
    )


def construct_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds per mini-batch of building its graph."""
    return _milli(record.phases_s.get("construct"))


def schedule_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds per mini-batch of choosing batches."""
    return _milli(record.phases_s.get("schedule"))


def execution_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds per mini-batch of all the rest; with scheduling where that is not told."""
    whole = mini_batch_ms(record)
    if whole is None:
        return None
    return max(0.0, whole - (construct_ms(record) or 0.0) - (schedule_ms(record) or 0.0))


def forward_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds per mini-batch of computing losses; with scheduling where that is not told."""
    return _milli(record.phases_s.get("forward"))


def backward_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds per mini-batch of computing gradients."""
    return _milli(record.phases_s.get("backward"))


def update_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds per mini-batch of changing parameters."""
    return _milli(record.phases_s.get("update"))


def latency_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds of computing one mini-batch forward."""
    return _milli(record.phases_s.get("forward"))


def preparing_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds of preparing (searching, laying out, compiling), once."""
    return _milli(record.compile_s)


def preparing_s(record: Record, _n_instances: int = 0) -> float | None:
    """Seconds of preparing, once."""
    return record.compile_s


def n_copies(record: Record, _n_instances: int = 0) -> float | None:
    """Launches per mini-batch that only bring operands together."""
    return record.n_copies


def copied_kb(record: Record, _n_instances: int = 0) -> float | None:
    """What they copy, in units of 1024 bytes."""
    return None if record.bytes_copied is None else record.bytes_copied / 1024


def peak_memory_mib(record: Record, _n_instances: int = 0) -> float | None:
    """MiB that the measured work needed at most, on a CPU beyond what was resident before it."""
    peak, before = record.peak_memory_bytes, record.baseline_memory_bytes
    if record.trial.device == "cuda":
        before = 0
    return None if peak is None or before is None else (peak - before) / 2**20


def unseen_ratio(record: Record, _n_instances: int = 0) -> float | None:
    """What mini-batches that were not seen before take over the timed ones."""
    return record.unseen_ratio


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


Quantity = Callable[[Record, int], float | None]
QUANTITIES: Mapping[str, Quantity] = {
    function.__name__: function
    for function in (
        epoch_s,
        construction_s,
        computation_s,
        moving_s,
        construction_percent,
        throughput,
        mini_batch_ms,
        n_batches,
        over_bound,
        construct_ms,
        schedule_ms,
        execution_ms,
        forward_ms,
        backward_ms,
        update_ms,
        latency_ms,
        preparing_ms,
        preparing_s,
        n_copies,
        copied_kb,
        peak_memory_mib,
        unseen_ratio,
        gflop_per_s,
        gbyte_per_s,
        flop_per_byte,
        graph_ms,
    )
}
PER_INSTANCE = "_per_instance"  # behind the name of a quantity of a mini-batch


def value_of(record: Record, quantity: str, n_instances: int = 0) -> float | None:
    """A quantity of one record; None where it does not tell."""
    whole = QUANTITIES[quantity.removesuffix(PER_INSTANCE)](record, n_instances)
    if whole is None or not quantity.endswith(PER_INSTANCE):
        return whole
    if not record.n_instances or not record.n_mini_batches:
        return None
    return whole * record.n_mini_batches / record.n_instances


ByRound = Mapping[int, float]  # a quantity in each round


def values_of(point: Point, quantity: str, n_instances: int = 0) -> ByRound | None:
    """The quantity by round; None unless every round is ok and tells it."""
    if point.status != "ok":
        return None
    records = [record for record in point.records if record is not None]
    values = ((r.trial.round, value_of(r, quantity, n_instances)) for r in records)
    told = {round_: value for round_, value in values if value is not None}
    return told if len(told) == len(point.records) else None


@dataclass(frozen=True, slots=True)
class Measured:
    """A number with what travels with it; without a summary, status is the word to print."""

    status: str
    summary: Summary | None = None
    warnings: tuple[str, ...] = ()


def measure_of(point: Point | None, quantity: str, n_instances: int = 0) -> Measured:
    """Summarise one quantity of a point over its rounds."""
    if point is None:
        return Measured(NOT_PLANNED)
    values = values_of(point, quantity, n_instances)
    if values is None:
        return Measured(NOT_SEPARABLE if point.status == "ok" else point.status)
    return Measured("ok", summarise(list(values.values())), point.warnings)


def arithmetic_of(whole: Point | None, profiled: Point | None, n_instances: int) -> Measured:
    """Seconds per epoch of computation without what only moves data, over rounds that both have.

    whole: a trial that tells its computation. profiled: the same that tells what moved, by itself,
    since telling costs time.
    """
    needed = (whole, "computation_s"), (profiled, "moving_s")
    parts = [measure_of(point, quantity, n_instances) for point, quantity in needed]
    for part in parts:
        if part.summary is None:
            return Measured(part.status)
    assert whole is not None  # for the type checker; a missing point has no summary
    assert profiled is not None
    all_s = values_of(whole, "computation_s", n_instances) or {}
    moving = values_of(profiled, "moving_s", n_instances) or {}
    rest_s = [max(0.0, all_s[round_] - moving[round_]) for round_ in all_s.keys() & moving.keys()]
    if not rest_s:
        return Measured(NOT_MEASURED)
    warnings = tuple(sorted({name for part in parts for name in part.warnings}))
    return Measured("ok", summarise(rest_s), warnings)


def speedup_of(
    other: Point | None, base: Point | None, quantity: str, n_instances: int = 0
) -> Measured:
    """How many times less the base takes: the median of other / base, round by round."""
    for point in (base, other):
        part = measure_of(point, quantity, n_instances)
        if part.summary is None:
            return Measured(part.status)
    assert base is not None  # for the type checker; a missing point has no summary
    assert other is not None
    numerator = values_of(other, quantity, n_instances) or {}
    denominator = values_of(base, quantity, n_instances) or {}
    if min(denominator.values()) <= 0:
        return Measured(NOT_SEPARABLE)
    ratios = paired_ratios(numerator, denominator)
    if not ratios:
        return Measured(NOT_MEASURED)
    warnings = tuple(sorted({*base.ratio_warnings, *other.ratio_warnings}))
    return Measured("ok", summarise(ratios), warnings)
