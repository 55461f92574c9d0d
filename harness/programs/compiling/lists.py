"""What programs do with lists and dicts, as text of compiled code."""

from __future__ import annotations

import ast

from harness.programs.compiling.expressions import Expressions
from harness.programs.compiling.kept_lists import FEWEST
from harness.programs.compiling.scopes import Scope, is_none
from harness.programs.compiling.values import (
    ArrayAt,
    DictAt,
    ListAt,
    Number,
    Several,
    Span,
    Value,
)


class Lists(Expressions):
    """Every new list has room for what it begins with; one that grows moves behind all others."""

    def new_list(self, room: str) -> ListAt:
        """An empty list with room for so many; room: a number that stays while it is looked for."""
        place = self.text.slot("int")
        self.text.now.n_lists += 1
        self.text.add(
            f"{place} = n_lists",
            f"n_items = begin(lists, n_lists, n_items, {room})",
            "n_lists += 1",
        )
        return ListAt(place)

    def long_list(self, room: str) -> ListAt:
        """The same where the number is not known now."""
        self.text.restartable()
        self.text.needs("items", room)
        return self.new_list(room)

    def append(self, of: ListAt | DictAt, value: str) -> None:
        """Add an integer at the end."""
        self.text.restartable()
        self.text.add(f"if is_full(lists, {of.text}):")
        self.text.needs("items", f"2 * lists[{of.text}, 1] + {FEWEST}", depth=1)
        self.text.add(f"n_items = append(lists, items, {of.text}, {value}, n_items)")

    def listed(self, scope: Scope, node: ast.AST, value: Value) -> ListAt:
        """A new list of all items."""
        if isinstance(value, ListAt):
            return ListAt(self._copied(value, "0", f"lists[{value.text}, 1]", "1"))
        if isinstance(value, Span):
            room = self.temporary("int", f"max(0, {value.stop} - {value.start})").text
            found = self.long_list(room)
            self.text.add(f"fill(lists, items, {found.text}, {value.start}, 1)")
            return found
        if isinstance(value, Several):
            texts = [self.item_of(scope, node, item) for item in value.items]
            found = self.long_list(str(max(FEWEST, len(texts))))
            for text in texts:
                self.text.add(f"n_items = append(lists, items, {found.text}, {text}, n_items)")
            return found
        scope.refuse(node, "makes a list of something else than integers")

    def _of_list(self, scope: Scope, node: ast.List) -> Value:
        return self.listed(scope, node, Several(tuple(self._kept_items(scope, node.elts))))

    def _of_dict(self, scope: Scope, node: ast.Dict) -> Value:
        items = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                scope.refuse(node, "unpacks a dict")
            items += self._kept_items(scope, [key, value])
        return DictAt(self.listed(scope, node, Several(tuple(items))).text)

    def sliced(self, scope: Scope, of: Value, cut: ast.Slice) -> Value:
        """A copy of a part."""
        if isinstance(of, Span):
            of = self.listed(scope, cut, of)
        if not isinstance(of, ListAt | ArrayAt):
            scope.refuse(cut, "cuts something else than a list")
        step = 1
        if cut.step is not None:
            found = self.number(scope, cut.step)
            if not found.is_literal or found.text == "0":
                scope.refuse(cut, "has a step that is not written there")
            step = int(found.text)
        n = f"lists[{of.text}, 1]"
        start, stop = ("0", n) if step > 0 else (f"({n} - 1)", "(-1)")
        if cut.lower is not None and not is_none(cut.lower):
            start = f"bound({self.integer(scope, cut.lower)}, {n}, {step})"
        if cut.upper is not None and not is_none(cut.upper):
            stop = f"bound({self.integer(scope, cut.upper)}, {n}, {step})"
        return type(of)(self._copied(of, start, stop, str(step)))

    def _copied(self, of: ListAt | ArrayAt, start: str, stop: str, step: str) -> str:
        begin = self.temporary("int", start).text
        room = self.temporary("int", f"length_of({begin}, {stop}, {step})").text
        found = self.long_list(room)
        self.text.add(f"copy(lists, items, {of.text}, {found.text}, {begin}, {step})")
        return found.text

    def extend(self, of: ListAt, by: ListAt) -> None:
        """Add all items of another list."""
        place = self.text.slot("int")
        self.text.add(f"{place} = 0")
        n = self.temporary("int", f"lists[{by.text}, 1]").text
        test, body, behind = (self.text.new() for _ in range(3))
        self.text.at(test)
        self.text.fork(f"{place} < {n}", body, behind)
        self.text.current = body
        self.append(of, f"item(lists, items, {by.text}, {place})")
        self.text.add(f"{place} += 1")
        self.text.jump(test)
        self.text.current = behind

    def joined(self, left: ListAt, right: ListAt) -> ListAt:
        """left + right."""
        found = ListAt(self._copied(left, "0", f"lists[{left.text}, 1]", "1"))
        self.extend(found, right)
        return found

    def repeated(self, scope: Scope, node: ast.AST, items: ListAt, n: Number) -> ListAt:
        """items * n."""
        n_times = self.whole(scope, node, n)
        found, times = self.long_list(str(FEWEST)), self.text.slot("int")
        self.text.add(f"{times} = {n_times}")
        test, body, behind = (self.text.new() for _ in range(3))
        self.text.at(test)
        self.text.fork(f"{times} > 0", body, behind)
        self.text.current = body
        self.extend(found, items)
        self.text.add(f"{times} -= 1")
        self.text.jump(test)
        self.text.current = behind
        return found

    def sorted_keys(self, of: DictAt, *, values: bool) -> ListAt:
        """Keys of a dict, the smallest first, or the values of these."""
        room = self.temporary("int", f"lists[{of.text}, 1]").text
        found = self.long_list(room)
        self.text.add(f"keys(lists, items, {of.text}, {found.text}, {values})")
        return found
