"""Fork servers that the commands of a file share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _commands_share_servers(shared_servers: None) -> None:
    """Share them in every file."""
