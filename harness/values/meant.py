"""The word that was probably meant, for messages on one that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def meant(word: str, known: Iterable[str]) -> str:
    """The known word that is closest, as a piece of a message; nothing where none is close."""
    close = get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""
