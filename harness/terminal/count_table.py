"""What `bench-schedule` tells people: a table per mini-batch, and why a policy has no counts."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.count_row import AnyCount, CountRow

HEADERS = {
    "n_vertices": "vertices",
    "n_batches": "batches",
    "lower_bound": "bound",
    "n_nodes_ed": "nodes (ED)",
    "n_batches_ed": "batches (ED)",
    "lower_bound_ed": "bound (ED)",
}
LEARNED_HEADERS = ("learn (s)", "unseen (%)")
FOLLOWING_HEADERS = ("ratio after", "unseen after (%)")


def table_of(rows: Sequence[AnyCount]) -> str:
    """Align one line a policy, times in milliseconds; columns that no policy fills are left out.

    Below it a line for every policy that has no counts, and why.
    """
    head = ["policy", *HEADERS.values(), "schedule (ms)", *LEARNED_HEADERS, *FOLLOWING_HEADERS]
    body = [_cells(row) if isinstance(row, CountRow) else _status_cells(row, head) for row in rows]
    columns = [c for c in zip(head, *body, strict=True) if any(c[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in zip(*columns, strict=True)
    ]
    return "\n".join([*lines, *reasons(rows)])


def _cells(row: CountRow) -> list[str]:
    after = row.following
    counts = (getattr(row, name) for name in HEADERS)
    return [
        row.policy,
        *(row.status_ed if count is None else str(count) for count in counts),
        f"{row.schedule_s * 1e3:.3f}",
        _shown(row.learn_s, "{:.3f}"),
        _shown(row.unseen_share, "{:.2%}"),
        _shown(None if after is None else after.ratio, "{:.3f}"),
        _shown(None if after is None else after.unseen_share, "{:.2%}"),
    ]


def _status_cells(row: AnyCount, head: Sequence[str]) -> list[str]:
    """The status stands in place of the number of batches."""
    place = head.index(HEADERS["n_batches"])
    return [row.policy, *("" if i != place else row.status for i in range(1, len(head)))]


def reasons(rows: Sequence[AnyCount]) -> list[str]:
    """Why numbers are missing, a line for each policy."""
    lines = []
    for row in rows:
        if not isinstance(row, CountRow):
            lines.append(f"{row.policy}: {row.status}: {row.reason}")
        elif row.reason_ed is not None:
            lines.append(f"{row.policy} (ED): {row.status_ed}: {row.reason_ed}")
    return lines


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value).rstrip("%")
