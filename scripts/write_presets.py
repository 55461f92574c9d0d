"""Write the table of switches in docs/presets.md from conf/system: no cell by hand.

python -m scripts.write_presets
"""

from __future__ import annotations

from harness.planning.kinds import read_systems
from harness.planning.yaml_files import read_mapping
from harness.values.places import CONF_DIR, ROOT
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "docs" / "presets.md", "write_presets")
KINDS = ("strategy", "transformed")  # presets of the engine
LEFT_OUT = ("backend", "loop")  # how it runs, not what it does
FIRST = "vertex"


def presets() -> dict[str, dict[str, object]]:
    """Options of every preset of the engine by its name, the plain engine first."""
    names = [system.name for system in read_systems(CONF_DIR) if system.kind in KINDS]
    names.sort(key=lambda name: (name != FIRST, name))
    paths = {name: CONF_DIR / "system" / f"{name}.yaml" for name in names}
    return {name: dict(read_mapping(path, "options")["options"]) for name, path in paths.items()}


def table() -> str:
    """A row for each switch, a column for each preset; in bold what is not as in the first."""
    options = presets()
    switches = [name for name in options[FIRST] if name not in LEFT_OUT]
    lines = [
        "| switch | " + " | ".join(f"`{name}`" for name in options) + " |",
        "|---|" + "---|" * len(options),
    ]
    for switch in switches:
        cells = [_cell(of[switch], options[FIRST][switch]) for of in options.values()]
        lines.append(f"| `{switch}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: object, first: object) -> str:
    word = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
    return word if value == first else f"**{word}**"


def main() -> None:
    """Write the page again."""
    PAGE.write(table())


if __name__ == "__main__":
    main()
