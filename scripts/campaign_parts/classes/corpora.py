"""Damaged files of every corpus that is read from files.

Promised: files are refused in one line that names them, or taken where they are well-formed; which
of the two is right a strict check of its own says. What does not change the text (a byte order
mark, other ends of lines) is refused or read as the same instances.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.campaign_parts.case import OK, Case, Outcome, Run
from scripts.campaign_parts.child import Child, a_child
from scripts.campaign_parts.corpus_files import CorpusFiles, corpora
from scripts.campaign_parts.mutations import INSTEAD, MUTATIONS, mutated
from scripts.campaign_parts.place import Place
from scripts.campaign_parts.well_formed import IllFormedError, n_instances

N_CASES = 2000
READER = "scripts.campaign_parts.reads_corpora"
FIRST_LIMIT_S, LIMIT_S = 60.0, 8.0  # the first answer waits for imports
N_VERSIONS = 8  # of the undamaged files
SAME_TEXT = ("bom", "cr")  # of which the check of its own says nothing


def does(number: int, rng: random.Random) -> dict[str, Any]:
    """Which file of which corpus is damaged in which way; `version` tells the undamaged one."""
    version = rng.randrange(N_VERSIONS)
    every = corpora(version)
    name = list(every)[number % len(every)]
    by_turns = number // len(every)
    # Once for each corpus what stands in the place of a file is none; all others are damaged.
    kinds = list(INSTEAD) if by_turns < len(INSTEAD) else list(MUTATIONS)
    file = rng.choice(every[name].damaged)
    mutation = kinds[by_turns % len(kinds)]
    by = rng.randrange(2**32)
    return {"corpus": name, "version": version, "file": file, "mutation": mutation, "by": by}


@contextmanager
def runner(folder: Path) -> Iterator[Run]:
    """One process reads all files."""
    versions = [corpora(version) for version in range(N_VERSIONS)]
    whole: dict[tuple[str, int], dict[str, Any]] = {}
    with a_child(READER, Place(folder, folder / "cache")) as child:

        def run(case: Case, place: Path) -> Outcome:
            does = case.does
            name, file, version = does["corpus"], does["file"], does["version"]
            one = versions[version][name]
            if (name, version) not in whole:
                write(one.files, place / "whole")
                whole[name, version] = _read(child, one, place / "whole", FIRST_LIMIT_S)
            files = dict(one.files)
            write(files, place / "root")
            if does["mutation"] in INSTEAD:
                INSTEAD[does["mutation"]](place / "root" / file)
                return fault_of_no_file(_read(child, one, place / "root", LIMIT_S), file)
            files[file] = mutated(files[file], does["mutation"], does["by"])
            write(files, place / "root")
            answer = _read(child, one, place / "root", LIMIT_S)
            return judged(does, files, answer, whole[name, version])

        yield run


def write(files: Mapping[str, bytes], root: Path) -> None:
    """Write the files of a corpus below a data root."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def _read(child: Child, one: CorpusFiles, root: Path, limit_s: float) -> dict[str, Any]:
    return child.ask({"loader": one.loader, "root": str(root)}, limit_s)


def fault_of_no_file(answer: Mapping[str, Any], file: str) -> Outcome:
    """What stands in the place of a file is refused, and named."""
    fault = _fault_of_answer(answer)
    if fault is not None:
        return fault
    if "refused" not in answer:
        return Outcome("accepted", "what is no file was read as one")
    is_named = Path(file).name in answer["refused"]
    return OK if is_named else Outcome("other", f"refused without its name: {answer['refused']}")


def judged(
    does: Mapping[str, Any],
    files: Mapping[str, bytes],
    answer: Mapping[str, Any],
    whole: Mapping[str, Any],
) -> Outcome:
    """The verdict on what a reader made of files; whole: what it made of them undamaged."""
    fault = _fault_of_answer(answer)
    if fault is not None:
        return fault
    if "content" not in whole:
        return Outcome("skipped", f"undamaged files are not read here: {whole.get('refused')}")
    if does["mutation"] in SAME_TEXT:
        is_same = "refused" in answer or answer["content"] == whole["content"]
        return OK if is_same else Outcome("accepted", "the same text is read as other instances")
    try:
        wanted = n_instances(does["corpus"], files)
    except IllFormedError as error:
        taken = "refused" not in answer
        return Outcome("accepted", f"{error}, but it was read") if taken else OK
    if "refused" in answer:
        return Outcome("other", f"well-formed, but refused: {answer['refused'][-200:]}")
    if answer["n_read"] != wanted:
        return Outcome("accepted", f"{answer['n_read']} instances read of {wanted}")
    return OK


def _fault_of_answer(answer: Mapping[str, Any]) -> Outcome | None:
    if "hung" in answer:
        return Outcome("hang", f"no answer within {answer['hung']:.0f} s")
    if "died" in answer:
        return Outcome("other", f"the reader's process ended with {answer['died']}")
    if "traceback" in answer:
        return Outcome("traceback", answer["traceback"].strip().splitlines()[-1])
    if "\n" in answer.get("refused", ""):
        return Outcome("other", "refused in several lines")
    return None
