"""Write into docs/systems.md what tables and figures call each system, from conf/system.

python -m scripts.write_labels
"""

from __future__ import annotations

from harness.planning.kinds import read_systems
from harness.planning.yaml_files import read_mapping
from harness.values.places import CONF_DIR, ROOT
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "docs" / "systems.md", "write_labels")


def words() -> str:
    """Every label with the name to type, by label."""
    names = [system.name for system in read_systems(CONF_DIR)]
    paths = {name: CONF_DIR / "system" / f"{name}.yaml" for name in names}
    labels = sorted(
        (str(read_mapping(path, "label")["label"]), name) for name, path in paths.items()
    )
    return "; ".join(f"{label} `{name}`" for label, name in labels) + ".\n"


def main() -> None:
    """Write the page again."""
    PAGE.write(words())


if __name__ == "__main__":
    main()
