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
from scripts.campaign_parts.mutations import MUTATIONS, mutated
from scripts.campaign_parts.place import Place
from scripts.campaign_parts.well_formed import IllFormed, n_instances

N_CASES = 2000
READER = "scripts.campaign_parts.reads_corpora"
LIMIT_S = 20.0  # the first answer waits for imports
SAME_TEXT = ("bom", "cr")  # of which the check of its own says nothing


def does(number: int, rng: random.Random) -> dict[str, Any]:
    """Which file of which corpus is damaged in which way."""
    every = corpora()
    name = list(every)[number % len(every)]
    mutation = list(MUTATIONS)[number // len(every) % len(MUTATIONS)]
    file = rng.choice(every[name].damaged)
    return {"corpus": name, "file": file, "mutation": mutation, "by": rng.randrange(2**32)}


@contextmanager
def runner(folder: Path) -> Iterator[Run]:
    """One process reads all files."""
    every = corpora()
    with a_child(READER, Place(folder, folder / "cache")) as child:
        whole = {
            name: _read(child, one, one.files, folder / "whole" / name)
            for name, one in every.items()
        }

        def run(case: Case, place: Path) -> Outcome:
            one = every[case.does["corpus"]]
            file = case.does["file"]
            damaged = mutated(one.files[file], case.does["mutation"], case.does["by"])
            files = {**one.files, file: damaged}
            answer = _read(child, one, files, place)
            return judged(case.does, files, answer, whole[case.does["corpus"]])

        yield run


def _read(
    child: Child, one: CorpusFiles, files: Mapping[str, bytes], root: Path
) -> dict[str, Any]:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return child.ask({"loader": one.loader, "root": str(root)}, LIMIT_S)


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
    except IllFormed as error:
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
