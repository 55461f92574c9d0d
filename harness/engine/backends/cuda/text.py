"""Writes tile functions: names of arrays, rows found through indices, loads and stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.engine.backends.cuda.arrays import FloatArray, WordArray
from harness.engine.backends.cuda.kinds import (
    Columns,
    Constant,
    Load,
    LoadParameter,
    Operand,
    Row,
    RowList,
)

INDENT = "    "
N_SLOTS = 4  # of programs, in front of the places of words in the header


@dataclass(slots=True)
class Names:
    """Arrays by their place among a kernel's arguments, words by their place in the header."""

    floats: dict[FloatArray, int] = field(default_factory=dict)
    words: dict[WordArray, int] = field(default_factory=dict)

    def of_floats(self, array: FloatArray) -> str:
        """What a float array is called."""
        return f"p{self.floats.setdefault(array, len(self.floats))}"

    def of_words(self, array: WordArray) -> int:
        """Where the header says where an array of words begins."""
        return self.words.setdefault(array, N_SLOTS + len(self.words))


@dataclass(slots=True)
class TileText:
    """The text of one tile function, of which other files write the kinds.

    live: the mask of rows. per_row: see TileKind.
    """

    names: Names
    live: str = "live"
    per_row: int = 1
    lines: list[str] = field(default_factory=list)
    pointers: dict[str, None] = field(default_factory=dict)
    depth: int = 1
    _begun: dict[WordArray, str] = field(default_factory=dict)
    _rows: dict[Row, tuple[str, str]] = field(default_factory=dict)
    _lists: dict[RowList, str] = field(default_factory=dict)
    _n_names: int = 0

    def add(self, *lines: str) -> None:
        """Write lines at the present depth."""
        self.lines += [INDENT * self.depth + line for line in lines]

    def own(self, prefix: str) -> str:
        """A name that nothing else has."""
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def pointer(self, array: FloatArray) -> str:
        """A float array, which becomes an argument."""
        name = self.names.of_floats(array)
        self.pointers[name] = None
        return name

    def begin(self, array: WordArray) -> str:
        """A pointer to the first of some words."""
        if array not in self._begun:
            name = self._begun[array] = f"a{self.names.of_words(array)}"
            # At the top, where every later line sees it.
            self.lines.insert(0, f"{INDENT}{name} = words + tl.load(words + {name[1:]})")
        return self._begun[array]

    def forget_rows(self) -> None:
        """Rows are others from here on."""
        self._rows.clear()
        self._lists.clear()

    # --- rows ---

    def row(self, row: Row) -> tuple[str, str]:
        """Index of every row and the mask of those that there are, as names of vectors."""
        if row.through is None:
            return row.base.value, self.live
        if row not in self._rows:
            index, at = self.own("r"), _element(row)
            begin, other = self.begin(row.through), "-1" if row.optional else "0"
            self.add(f"{index} = tl.load({begin} + {at}, mask={self.live}, other={other})")
            mask = self.live
            if row.optional:
                mask = self.own("o")
                self.add(f"{mask} = {index} >= 0", f"{index} = tl.where({mask}, {index}, 0)")
            self._rows[row] = (index, mask)
        return self._rows[row]

    def listed(self, rows: RowList) -> str:
        """The suffix of the names of a list's first items (f), their numbers (n), the most (t)."""
        if rows not in self._lists:
            name = self._lists[rows] = self.own("e")
            at, live = f"{self.begin(rows.starts)} + {rows.base.value}", self.live
            self.add(
                f"f{name} = tl.load({at}, mask={live}, other=0)",
                f"n{name} = tl.load({at} + 1, mask={live}, other=0) - f{name}",
                f"t{name} = tl.max(n{name}, 0)",
            )
        return self._lists[rows]

    def item(self, rows: RowList, j: str) -> tuple[str, str]:
        """Index and mask of the j-th item of every row's list."""
        name, mask, index = self.listed(rows), self.own("o"), self.own("r")
        self.add(f"{mask} = {j} < n{name}")
        if rows.items is None:
            self.add(f"{index} = tl.where({mask}, f{name} + {j}, 0)")
        else:
            at = f"{self.begin(rows.items)} + f{name} + {j}"
            self.add(f"{index} = tl.load({at}, mask={mask}, other=0)")
        return index, mask

    # --- elements ---

    def element(self, columns: Columns, index: str, width: int, *, cols: str = "cols") -> str:
        """Pointers to columns of rows; width: of the row of a matrix a vertex, if it is one."""
        at = f"{self.pointer(columns.array)} + {index}[:, None] * {columns.width}"
        if self.per_row > 1:
            at += f" + part[:, None] * {width}"
        start = f"{columns.start} + " if columns.start else ""
        return f"{at} + ({start}{cols})[None, :]"

    def mask(self, rows: str, inside: str) -> str:
        """The mask of a block; inside: of its columns, or nothing."""
        return f"{rows}[:, None] & {inside}" if inside else f"{rows}[:, None]"

    def operand(self, name: str, operand: Operand, width: int, shape: str, inside: str) -> None:
        """Lines that give an operand's block of this tile a name."""
        if isinstance(operand, Constant):
            self.add(f"{name} = tl.full({shape}, {operand.value!r}, tl.float32)")
        elif isinstance(operand, LoadParameter):
            pointer, at = self.pointer(operand.array), "cols"
            if operand.period:
                at = f"cols % {operand.period}"
            if operand.start:
                at = f"{operand.start} + {at}"
            mask = f"mask=cols < {width}, other=0.0"
            self.add(f"{name} = tl.load({pointer} + {at}, {mask})[None, :]")
        elif operand.same:
            self._load_one_column(name, operand, shape)
        elif isinstance(operand.columns.row, RowList):
            self._load_list(name, operand.columns, operand.columns.row, width, shape, inside)
        else:
            index, mask = self.row(operand.columns.row)
            element = self.element(operand.columns, index, width)
            self.add(f"{name} = tl.load({element}, mask={self.mask(mask, inside)}, other=0.0)")

    def _load_one_column(self, name: str, operand: Load, shape: str) -> None:
        row = operand.columns.row
        assert isinstance(row, Row)
        index, mask = self.row(row)
        at = f"{index} * {operand.columns.width} + {operand.columns.start}"
        value = f"tl.load({self.pointer(operand.columns.array)} + {at}, mask={mask}, other=0.0)"
        self.add(f"{name} = tl.broadcast_to({value}[:, None], {shape})")

    def _load_list(
        self, name: str, columns: Columns, rows: RowList, width: int, shape: str, inside: str
    ) -> None:
        suffix = self.listed(rows)
        self.add(f"{name} = tl.zeros({shape}, tl.float32)", f"for j in range(0, t{suffix}):")
        self.depth += 1
        index, on = self.item(rows, "j")
        mask = self.mask(on, inside)
        element = self.element(columns, index, width)
        self.add(f"{name} += tl.load({element}, mask={mask}, other=0.0)")
        self.depth -= 1

    def store(self, columns: Columns, name: str, width: int, inside: str) -> None:
        """A line that writes a block of this tile."""
        assert isinstance(columns.row, Row)
        index, mask = self.row(columns.row)
        element = self.element(columns, index, width)
        self.add(f"tl.store({element}, {name}, mask={self.mask(mask, inside)})")


def _element(row: Row) -> str:
    at = row.base.value if row.stride == 1 else f"{row.base.value} * {row.stride}"
    return f"{at} + {row.at}" if row.at else at
