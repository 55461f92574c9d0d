"""What a record achieved per second, of the work that its system counted; None where it did not."""

from __future__ import annotations

from harness.records.record import Record


def gflop_per_s(record: Record, _n_instances: int = 0) -> float | None:
    """Operations of floats per second of forward and backward, in 10^9."""
    return _per_second(record, record.n_flop)


def gbyte_per_s(record: Record, _n_instances: int = 0) -> float | None:
    """Bytes that steps read and wrote per second of forward and backward, in 10^9."""
    return _per_second(record, record.bytes_touched)


def flop_per_byte(record: Record, _n_instances: int = 0) -> float | None:
    """Operations of floats for each byte that a step reads or writes."""
    if not record.n_flop or not record.bytes_touched:
        return None
    return record.n_flop / record.bytes_touched


def graph_ms(record: Record, _n_instances: int = 0) -> float | None:
    """Milliseconds per mini-batch of graph work: construct, and schedule where it is told apart."""
    told = [record.phases_s.get("construct"), record.phases_s.get("schedule")]
    if told[0] is None:
        return None
    return 1e3 * sum(seconds for seconds in told if seconds is not None)


def _per_second(record: Record, amount: float | None) -> float | None:
    phases = (record.phases_s.get("forward"), record.phases_s.get("backward"))
    seconds = sum(one for one in phases if one is not None)
    return amount / seconds / 1e9 if amount and seconds else None
