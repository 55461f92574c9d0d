"""Segments planned by compiled code equal those planned one by one by policy and layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynbatch.harness.compiler.pointers import view_array
from dynbatch.harness.contracts.model import Model
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.contracts.system import Result
from dynbatch.harness.engine.backends.compiled import live_segments
from dynbatch.harness.engine.backends.compiled.backend import Backend
from dynbatch.harness.engine.backends.compiled.live_segments import CompiledSegments
from dynbatch.harness.engine.cpu_kernels.team import Table, Team
from dynbatch.harness.engine.live import LiveEngine, Seen
from dynbatch.harness.errors import ProgramError, ScheduleError
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.log import DONE
from dynbatch.harness.programs.writer import Body, CallWriter
from dynbatch.systems.on_core.acrobat import Adapter
from tests.support.engine_runs import ONE_BY_ONE, run
from tests.support.fake_time import NullClock
from tests.support.program_models import DECIDED, SENTENCES, WITH_ARRAYS
from tests.support.run_programs import MADE_BY_PYTHON, Decides, check_result, live_adapter
from tests.support.scripted_programs import (
    OPTIONS,
    Branches,
    Call,
    Choose,
    Loop,
    Scripted,
    ScriptedModel,
    instances,
)

RUN_SEGMENTS = CompiledSegments.run
EVERY = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
LAYOUTS = ("policy", "read_order")
NEWEST = 27719  # one less than a multiple of all numbers up to 12: the last of as many values
# Deep and wide, with segments without new vertices; larger than the first mini-batch's memory.
LARGE = [
    Scripted((Loop(3, (Choose(NEWEST, k, (3, 1)), Call("many", (0, k, 2), 1))),) * (k % 3 + 1), k)
    for k in range(9)
]
SMALL = [Scripted((Choose(0, 0, (0, 1)),), 0)]
FORKED = [
    Scripted((Branches(((Choose(0, k, (1, 2)),), (Choose(0, 3, (0, 1)),))),), k) for k in (1, 2)
]


def run_both(adapter: Adapter, batch: Sequence[Any]) -> list[tuple[Result, list[Seen], Any]]:
    """Run a mini-batch by compiled code, and by the policy; Python starts every segment in both."""
    live, found = adapter.live, []
    for is_kept in (True, False):
        calls = list[Any]()
        with pytest.MonkeyPatch.context() as patch:
            if not is_kept:
                patch.setattr(LiveEngine, "can_keep", lambda _: False)
            patch.setattr(CompiledSegments, "maker", MADE_BY_PYTHON)
            patch.setattr(CompiledSegments, "run", _run_in_steps)
            patch.setattr(Team, "run_table", _noted(Team.run_table, calls))
            adapter.load(batch)
            adapter.run(NullClock())
        assert (live.engine._current is not None) == is_kept
        found.append((adapter.result(), live.engine.seen, calls))
    return found


def _run_in_steps(segments: CompiledSegments, n: int, left: int, take_feeds: Any) -> None:
    """Call `run` with separate steps for decoding, planning and running."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_segments, "run_segment", partial(_steps, segments))
        RUN_SEGMENTS(segments, n, left, take_feeds)


def _steps(segments: CompiledSegments, table: int, n: int) -> int:
    left = live_segments.decode_next(table, n, segments.decoder.base, int(segments.decoder.restart))
    if left != DONE:
        return left
    n_calls = live_segments.plan_next(table, int(segments.rules.reorder))
    if n_calls > 0:
        for flags in segments._memory.list_flags():
            flags.fill(0)
        segments._team.run_table(segments.kept["calls"], n_calls)
    return min(n_calls, DONE)


def _noted(make: Any, calls: list[Any]) -> Any:
    """Record the batches with which each stage's function is called."""

    def noted(self: Team, table: Table, n: int) -> None:
        calls.append(
            [
                (function, argument, view_array(batches, (n_batches, 2), np.int32).tolist())
                for function, argument, batches, n_batches in table[:n].tolist()
            ]
        )
        make(self, table, n)

    return noted


def check_same(adapter: Adapter, batch: Sequence[Any]) -> None:
    adapter.load(batch)
    adapter.run(NullClock())  # runs again if blocks feed each other in a new way
    assert adapter.live.engine._current is not None, "nothing was wrong, and so run with checks"
    (kept, kept_seen, kept_calls), (by_policy, seen, calls) = run_both(adapter, batch)
    np.testing.assert_array_equal(kept.outputs, by_policy.outputs)
    assert kept.loss == by_policy.loss
    assert kept.counters == by_policy.counters
    assert kept_calls == calls
    assert len(kept_seen) == len(seen)
    policy = load_policy("inline_depth")
    for ours, theirs in zip(kept_seen, seen, strict=True):
        for other in (theirs.schedule, policy(ours.graph)):
            check_fields(ours.schedule, other, "order", "starts")
        check_fields(ours.graph, theirs.graph, "types", "arg_start", "args", "phases", "depths")
        types, names = ours.arrangement.types, ("numbers", "bounds", "counts", "batches", "n_rows")
        check_fields(types, theirs.arrangement.types, *names)


def check_fields(ours: Any, theirs: Any, *names: str) -> None:
    """Check that attributes of both are equal arrays."""
    for name in names:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)


@EVERY
@given(
    instances(),
    st.sampled_from(OPTIONS),
    st.sampled_from(LAYOUTS),
    st.sampled_from([SMALL, LARGE, FORKED]),
)
def test_compiled_plan_equals_policy_and_layout(
    batch: list[Scripted], how: RecordingOptions, layout: str, other: list[Scripted]
) -> None:
    adapter = live_adapter(ScriptedModel(), how, layout=layout)
    for one in (batch, other, batch[::-1]):
        check_same(adapter, one)
        check_result(run(adapter, one), ScriptedModel(), one)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "switches",
    [one for one in ONE_BY_ONE.values() if "outputs" not in one] + [{"fold_tables": True}],
    ids=str,
)
def test_switches_and_threads_change_nothing(switches: dict[str, Any], threads: int) -> None:
    adapter = live_adapter(ScriptedModel(), threads=threads, **switches)
    for batch in (SMALL, LARGE, FORKED):
        check_same(adapter, batch)


@pytest.mark.parametrize(
    ("model", "batch"),
    [*((model, SENTENCES) for model in DECIDED), *WITH_ARRAYS],
    ids=lambda one: getattr(one, "name", ""),
)
def test_models_are_planned_the_same(model: Model, batch: Sequence[Any]) -> None:
    adapter = live_adapter(model)
    for one in (batch[:1], batch, batch[::-1]):
        check_same(adapter, one)


def test_functions_whose_states_do_not_follow_on_are_run_batch_by_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also before all batches, if they use states there; the test pretends that they do."""
    kind_of = Backend._inspect_steps
    monkeypatch.setattr(Backend, "_inspect_steps", lambda *of: (kind_of(*of)[0], True))
    many, unary = Call("many", (0, NEWEST), 1), Call("unary_a", (NEWEST,), 0)
    script = (many, unary, many, Call("leaf", (), 2), many)
    adapter = live_adapter(ScriptedModel(), RecordingOptions(hoisting=False))
    check_same(adapter, [Scripted(script, k) for k in range(3)])
    (one,) = adapter.live.engine.seen
    function = adapter.live.recording.type_names.index("many")
    assert function in one.arrangement.types.scattered
    assert adapter.engine.plans[function].steps["eager"]


def test_layouts_are_those_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout requested right after a segment must match that of the segment's arrangement."""
    adapter, met = live_adapter(ScriptedModel()), list[Any]()
    run(adapter, LARGE)

    def noting(self: CompiledSegments, *of_segment: Any) -> None:
        before = self.n_vertices
        RUN_SEGMENTS(self, *of_segment)
        if self.n_vertices > before:
            layout = self.view_layout()
            met.append([getattr(layout, name).copy() for name in ("numbers", "bounds", "batches")])

    monkeypatch.setattr(CompiledSegments, "run", noting)
    adapter.run(NullClock())
    seen = adapter.live.engine.seen
    assert len(met) == len(seen) > 3
    for ours, one in zip(met, seen, strict=True):
        theirs = one.arrangement.types
        for found, name in zip(ours, ("numbers", "bounds", "batches"), strict=True):
            np.testing.assert_array_equal(found, getattr(theirs, name))


BY_PYTHON = ({"policy": "frontier"}, {"loop": "python"}, {"backend": "stepwise"})


@EVERY
@given(instances(), st.sampled_from(OPTIONS), st.sampled_from(BY_PYTHON))
def test_python_planning_or_execution_disables_compiled_segments(
    batch: list[Scripted], how: RecordingOptions, options: dict[str, Any]
) -> None:
    adapter = live_adapter(ScriptedModel(), how, **options)
    for one in (batch, LARGE):
        check_result(run(adapter, one), ScriptedModel(), one)
        assert adapter.live.engine._current is None


def test_memory_is_kept_from_round_to_round_and_from_one_mini_batch_to_the_next() -> None:
    adapter = live_adapter(ScriptedModel())
    for batch in (LARGE, SMALL):
        run(adapter, batch)
    segments = adapter.live.engine._current
    before, decoded = segments.kept.table.copy(), segments._decoded.table.copy()
    for batch in (SMALL, LARGE, LARGE[::-1], FORKED):
        run(adapter, batch)
        assert adapter.live.engine._current is segments
    np.testing.assert_array_equal(segments.kept.table, before)
    np.testing.assert_array_equal(segments._decoded.table, decoded)


class Faulty(ScriptedModel):
    """Program with an error for instance number 7, in its second segment."""

    def program(self, p: CallWriter, instance: Scripted) -> Body:
        value = p.leaf(word=1, label=0)
        yield p.chance(value, 1)
        if instance.number == 7:
            value = p.project(p.unary_a(value, label=0))
        yield p.chance(value, 2)
        return p.unary_b(value, label=1)


def test_error_is_reported_and_leaves_no_state() -> None:
    adapter = live_adapter(Faulty())
    good = [Scripted((), k) for k in range(4)]
    first = run(adapter, good)
    for _ in range(2):
        with pytest.raises(
            ProgramError, match=r"test_compiled_segments\.py:\d+ calls project with other"
        ):
            run(adapter, [*good, Scripted((), 7)])
        again = run(adapter, good)
        np.testing.assert_array_equal(again.outputs, first.outputs)
        assert again.counters == first.counters


def test_check_uses_the_executed_schedule() -> None:
    """The check uses the schedule that ran, not that of another pass over the same graph."""
    adapter = live_adapter(ScriptedModel())
    engine = adapter.live.engine
    for name, message in (("order", "exactly once"), ("row", "rows of a graph segment")):
        assert run(adapter, LARGE)
        adapter.run(NullClock())
        engine._current.kept[name][0] = engine._current.kept[name][1] = 1
        with pytest.raises(ScheduleError, match=message):
            adapter.result()


def test_numbers_of_states_are_read_between_segments() -> None:
    adapter, batch = live_adapter(Decides()), [Scripted((), k) for k in range(5)]
    for one in (batch, batch[:2], batch):
        check_same(adapter, one)
        check_result(adapter.result(), Decides(), one)
