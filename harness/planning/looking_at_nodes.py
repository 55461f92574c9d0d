"""A look at a cluster's nodes before anything is measured: folder, environment and code.

The look begins with a shell, since what is missing may be the Python that we run with.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.errors import ConfigError
from harness.planning.nodes import Nodes
from harness.planning.orders import check_code
from harness.planning.slurm import idle_nodes, on_each
from harness.records.files import replace_whole

MOST_LOOKED_AT = 8  # a look takes a second, and a fault is mostly everywhere
SEEN = ".seen_by_nodes"  # below the results, for the time of the look
NO_FOLDER, NO_PYTHON, CODE = "no_folder", "no_python", "code="


def look_at_nodes(nodes: Nodes, results_dir: Path, say: Callable[[str], None]) -> None:
    """Raise ConfigError for a node that lacks the folder of results, the environment or our code.

    Of those that are idle some are looked at; each job looks for itself before it measures.
    """
    idle = idle_nodes(nodes.partition)
    if not idle:
        say("no node is idle to be looked at; each job looks for itself before it measures")
        return
    file = results_dir.resolve() / SEEN
    replace_whole(file, "seen\n")
    try:
        check_seen(
            on_each(idle[:MOST_LOOKED_AT], nodes.partition, ["sh", "-c", script(file)]), results_dir
        )
    finally:
        file.unlink(missing_ok=True)


def script(file: Path) -> str:
    """What is run on a node: it prints one word, or the version of its code."""
    python = shlex.quote(sys.executable)
    look = "from harness.planning.orders import code_of_this_machine as c; print('code=' + c())"
    return (
        f"test -e {shlex.quote(str(file))} || {{ echo {NO_FOLDER}; exit; }};"
        f" test -x {python} || {{ echo {NO_PYTHON}; exit; }};"
        f" exec {python} -c {shlex.quote(look)}"
    )


def check_seen(found: Mapping[str, str], results_dir: Path) -> None:
    """Raise ConfigError, in one line, for the first node that is not as it has to be.

    found: what each node printed.
    """
    for node, printed in found.items():
        lines = printed.split("\n")
        if NO_FOLDER in lines:
            raise ConfigError(
                f"{node} does not see {results_dir.resolve()}: results_dir has to be a folder that"
                " the head node and all nodes share"
            )
        if NO_PYTHON in lines:
            raise ConfigError(
                f"{node} has no {sys.executable}: make the environment (make install) in a folder"
                " that the head node and all nodes share"
            )
        codes = [line.removeprefix(CODE) for line in lines if line.startswith(CODE)]
        if not codes:
            last = next((line for line in reversed(lines) if line.strip()), "no word")
            raise ConfigError(
                f"{node} cannot run our code with {sys.executable}: {last.strip()}; see that all"
                " nodes have the checkout and the environment of the head node"
            )
        check_code(codes[0], node)
