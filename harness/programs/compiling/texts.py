"""Basic blocks of the text that is written: lines between one jump and the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.programs.compiling.values import (
    KEPT_LISTS,
    NotTranslated,
    Number,
    NumberKind,
    Several,
    Span,
    Value,
    Zipped,
)

# Columns of a frame before its slots: where it goes on, its number as a fiber, its instance; whose
# branch it is, and where its result goes there; how many of its own branches have not ended.
PC, NUMBER, INSTANCE, PARENT, RESULT, LEFT, FIRST_SLOT = range(7)
LONG = 40  # characters
WITH_TEXT = Number | KEPT_LISTS
TAKES: Mapping[NumberKind, tuple[NumberKind, ...]] = {  # what a place of a kind may be given
    "int": ("int", "bool"),
    "bool": ("bool",),
    "float": ("float",),
    "maybe": ("maybe", "int", "bool"),
    "narrow": ("narrow",),
}


@dataclass(slots=True)
class Lines:
    """One block. targets: blocks that it may jump to.

    n_log, n_lists: entries of the log that it may add, lists that it may make. is_closed: whether
    it has its jump. is_begun_anew: whether it may be run from its beginning once more.
    """

    lines: list[str] = field(default_factory=list)
    targets: set[int] = field(default_factory=set)
    n_log: int = 0
    n_lists: int = 0
    is_closed: bool = False
    is_begun_anew: bool = False


class Texts:
    """All blocks of one translation, and the slots of the frame whose function is being written."""

    def __init__(self) -> None:
        self.blocks: list[Lines] = []
        self.current = self.new()
        self.n_slots, self.n_reals = FIRST_SLOT, 0
        self._once: set[str] = set()  # slots of what is computed and never assigned to again
        self.most_slots, self.most_reals = FIRST_SLOT, 0

    def begin_frame(self) -> None:
        """Slots from here on are those of another function's frame."""
        self._once = set()
        self.n_slots, self.n_reals = FIRST_SLOT, 0

    def new(self) -> int:
        """A block of which nothing is written yet."""
        self.blocks.append(Lines())
        return len(self.blocks) - 1

    @property
    def now(self) -> Lines:
        """What is written to."""
        return self.blocks[self.current]

    def add(self, *lines: str) -> None:
        """Write lines, unless nothing comes here."""
        if not self.now.is_closed:
            self.now.lines += lines

    def at(self, block: int) -> None:
        """Go on in another block; where none was jumped to, the one before falls into it."""
        self.jump(block)
        self.current = block

    def jump(self, block: int) -> None:
        """End here, and go on there."""
        if not self.now.is_closed:
            self.add(f"pc = {self.goes(block)}", "continue")
            self.now.is_closed = True

    def goes(self, block: int) -> str:
        """The text of a block's number, which is not known before all are written."""
        self.now.targets.add(block)
        return f"@{block}@"

    def stop(self, *lines: str) -> None:
        """End here for good."""
        self.add(*lines)
        self.now.is_closed = True

    def fork(self, test: str, then: int, otherwise: int) -> None:
        """End here, and go one way or the other."""
        if not self.now.is_closed:
            self.add(f"pc = {self.goes(then)} if {test} else {self.goes(otherwise)}", "continue")
            self.now.is_closed = True

    def restartable(self) -> None:
        """What follows may find too little room, and is then begun once more."""
        self.at(self.new())
        self.now.is_begun_anew = True

    def needs(self, array: str, need: str, depth: int = 0) -> None:
        """Return for more room where `log` or `items` has too little for so many elements more."""
        lines = (
            f"if n_{array} + {need} + MARGIN > len({array}):",
            f"    want, code = {need}, MORE_{array.upper()}",
            "    break",
        )
        self.add(*("    " * depth + line for line in lines))

    def slot(self, kind: NumberKind | str) -> str:
        """The text of a new slot."""
        if kind == "float":
            self.n_reals += 1
            self.most_reals = max(self.most_reals, self.n_reals)
            return f"T[{self.n_reals - 1}]"
        self.n_slots += 1
        self.most_slots = max(self.most_slots, self.n_slots)
        return f"S[{self.n_slots - 1}]"

    def kept(self, value: Value) -> Value:
        """The same in slots of its own, so that nothing which is assigned later changes it."""
        if isinstance(value, Number) and value.is_literal:
            return value
        if isinstance(value, WITH_TEXT) and value.text in self._once:
            return value
        place = self.place_like(value)
        self.stored(place, value)
        if isinstance(place, WITH_TEXT):
            self._once.add(place.text)
        return place

    def short(self, value: Value) -> Value:
        """The same, computed now where it would be long to write down again and again.

        What is read of a list is in a slot already, and a call cannot change slots of its caller.
        """
        is_long = isinstance(value, WITH_TEXT) and len(value.text) > LONG
        return self.kept(value) if is_long else value

    def place_like(self, value: Value) -> Value:
        """New slots for a value of this kind; what is known now needs none."""
        if isinstance(value, Several):
            return Several(tuple(self.place_like(item) for item in value.items))
        if isinstance(value, Number):
            place = self.slot(value.kind)
            return Number(value.kind, truth(place) if value.kind == "bool" else place)
        if isinstance(value, Span):
            return Span(self.slot("int"), self.slot("int"))
        if isinstance(value, Zipped):
            return Zipped(tuple(self.place_like(item) for item in value.items))
        if isinstance(value, KEPT_LISTS):
            return type(value)(self.slot("int"))
        return value

    def stored(self, place: Value, value: Value) -> None:
        """Assign to what `kept` has returned; raises NotTranslated for another kind of value."""
        if isinstance(place, Several | Zipped) and isinstance(value, Several | Zipped):
            if len(place.items) == len(value.items):
                for one, item in zip(place.items, value.items, strict=True):
                    self.stored(one, item)
                return
        elif isinstance(place, Number) and isinstance(value, Number):
            if value.kind in TAKES[place.kind]:
                self.add(f"{place_of(place)} = {value.text}")
                return
        elif isinstance(place, KEPT_LISTS) and type(value) is type(place):
            self.add(f"{place.text} = {value.text}")
            return
        elif isinstance(place, Span) and isinstance(value, Span):
            self.add(f"{place.start}, {place.stop} = {value.start}, {value.stop}")
            return
        elif place == value:
            return
        raise NotTranslated("gives a name values of several kinds")


def truth(place: str) -> str:
    """A bool that is kept as an integer."""
    return f"({place} != 0)"


def place_of(number: Number) -> str:
    """The slot of a number that is kept."""
    return number.text.removeprefix("(").removesuffix(" != 0)")
