"""A part of the tests, for a machine that may run for minutes at a time.

    python -m pytest -p tests.support.shards --shard 2/6

Which part a test belongs to depends on its name alone, so that a part that was stopped is run again
as it was, and kernels that it has compiled are there.
"""

from __future__ import annotations

import zlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", default="1/1", metavar="K/N", help="the K-th of N parts")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, n = map(int, str(config.getoption("--shard")).split("/"))
    mine = [one for one in items if zlib.crc32(one.nodeid.encode()) % n == number - 1]
    config.hook.pytest_deselected(items=[one for one in items if one not in set(mine)])
    items[:] = mine
