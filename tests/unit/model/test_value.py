"""Classes behave as the standard decorator's, shape by shape, before and after their constructor is compiled."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import InitVar, field
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kernel_hub.model import value

ROOT = Path(__file__).parents[3]


def shapes(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """The same classes under one decorator."""

    @dataclass(frozen=True, slots=True)
    class Plain:
        """Two fields, one with a default, and what is no field."""

        shared: ClassVar[int] = 3
        left: int
        right: str = "r"

    @dataclass(frozen=True, slots=True)
    class Empty:
        """No field."""

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        """Compared in order of its fields."""

        first: float
        second: int = field(default=0, compare=False)

    @dataclass(frozen=True, slots=True)
    class Made:
        """Defaults that are made, a field that is hidden, fields that are derived."""

        parts: list[int] = field(default_factory=list, hash=False)
        secret: str = field(default="s", repr=False)
        total: int = field(init=False)
        constant: int = field(init=False, default=7)
        own: list[int] = field(init=False, default_factory=list, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", sum(self.parts))

    @dataclass(frozen=True, slots=True, eq=False)
    class Single:
        """Equal to itself only."""

        name: str

    @dataclass(frozen=True, slots=True)
    class Worded:
        """Writes itself and compares itself."""

        name: str

        def __str__(self) -> str:
            return self.name

        def __repr__(self) -> str:
            return f"<{self.name}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.name.lower() == other.name.lower()

    class Bare(Plain):
        """A class that is no value itself."""

    @dataclass(slots=True)
    class Open:
        """May be changed."""

        name: str
        parts: list[int] = field(default_factory=list)

    kinds = (Plain, Empty, Ordered, Made, Single, Worded, Bare, Open)
    return {kind.__name__: kind for kind in kinds}


STANDARD = shapes(dataclasses.dataclass)
OURS = shapes(value.dataclass)
COMPILED = shapes(value.dataclass)
for kind in COMPILED.values():
    # Who looks at a constructor gets the compiled one.
    assert inspect.isfunction(kind.__init__)


def fresh(name: str) -> Any:
    """A class of which no value was made yet."""
    return shapes(value.dataclass)[name]


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Plain", (1,), {}),
    ("Plain", (1, "x"), {}),
    ("Plain", (), {"right": "x", "left": 2}),
    ("Empty", (), {}),
    ("Ordered", (3,), {}),
    ("Ordered", (3, 4), {}),
    ("Made", (), {}),
    ("Made", ([1, 2],), {"secret": "t"}),
    ("Worded", ("w",), {}),
    ("Bare", (1,), {}),
    ("Open", ("a",), {}),
    ("Open", ("a", [1]), {}),
]


def outcome(call: Callable[[], Any]) -> str:
    """What a call gives, or how it fails, as text."""
    try:
        return repr(call())
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("kinds", [OURS, COMPILED], ids=["filled", "compiled"])
@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_a_value_reads_and_compares_as_the_standard_one(kinds: Any, name: str, args: Any, kwargs: Any) -> None:
    ours, standard = kinds[name](*args, **kwargs), STANDARD[name](*args, **kwargs)
    assert (repr(ours), str(ours)) == (repr(standard), str(standard))
    assert dataclasses.astuple(ours) == dataclasses.astuple(standard)
    assert dataclasses.asdict(ours) == dataclasses.asdict(standard)
    assert ours == kinds[name](*args, **kwargs)
    assert ours != standard
    assert ours != 1


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_a_value_has_a_digest_number_where_the_standard_one_has(name: str, args: Any, kwargs: Any) -> None:
    def is_stable(kind: Any) -> bool:
        return hash(kind(*args, **kwargs)) == hash(kind(*args, **kwargs))

    assert outcome(lambda: is_stable(OURS[name])) == outcome(lambda: is_stable(STANDARD[name]))


@pytest.mark.parametrize("name", OURS)
def test_a_class_shows_what_the_standard_one_shows(name: str) -> None:
    ours, standard = OURS[name], STANDARD[name]
    assert ours.__match_args__ == standard.__match_args__
    assert getattr(ours, "__slots__", None) == getattr(standard, "__slots__", None)
    assert ours.__doc__ == standard.__doc__
    assert str(inspect.signature(ours)) == str(inspect.signature(standard))
    assert typing.get_type_hints(ours.__init__) == typing.get_type_hints(standard.__init__)
    assert (ours.__init__.__qualname__, ours.__init__.__module__) == (
        standard.__init__.__qualname__,
        standard.__init__.__module__,
    )
    assert repr(ours.__dataclass_params__) == repr(standard.__dataclass_params__)
    described = [(item.name, item.type, item.default, item.init, item.repr, item.hash, item.compare) for item in
                 dataclasses.fields(ours)]  # fmt: skip
    assert described == [
        (item.name, item.type, item.default, item.init, item.repr, item.hash, item.compare)
        for item in dataclasses.fields(standard)
    ]


@pytest.mark.parametrize("compare", [lt, le, gt, ge])
@pytest.mark.parametrize(("left", "right"), [(1, 2), (2, 1), (1, 1), (float("nan"), 1)])
def test_ordered_values_are_ordered_as_the_standard_ones(compare: Any, left: float, right: float) -> None:
    ours = compare(OURS["Ordered"](left), OURS["Ordered"](right))
    assert ours == compare(STANDARD["Ordered"](left), STANDARD["Ordered"](right))


@pytest.mark.parametrize(("name", "other"), [("Ordered", 1), ("Plain", None)])
def test_values_without_an_order_have_none(name: str, other: Any) -> None:
    assert outcome(lambda: OURS[name](1) < (other or OURS[name](2))) == outcome(
        lambda: STANDARD[name](1) < (other or STANDARD[name](2))
    )


def test_fields_outside_comparison_do_not_count() -> None:
    assert OURS["Ordered"](1, 2) == OURS["Ordered"](1, 3)
    assert hash(OURS["Ordered"](1, 2)) == hash(OURS["Ordered"](1, 3))
    assert hash(OURS["Made"]([1])) == hash(OURS["Made"]([1]))


def test_values_without_equality_are_equal_to_themselves_only() -> None:
    single = OURS["Single"]("a")
    assert single == single
    assert len({single, OURS["Single"]("a")}) == 2


@pytest.mark.parametrize("name", ["left", "other"])
def test_a_value_cannot_be_changed(name: str) -> None:
    ours = OURS["Plain"](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match=name):
        setattr(ours, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match=name):
        delattr(ours, name)
    assert ours == OURS["Plain"](1)


def test_a_class_that_is_not_frozen_can_be_changed_and_copied() -> None:
    opened = OURS["Open"]("a")
    opened.name = "b"
    assert opened == copy.copy(opened) == OURS["Open"]("b")


@pytest.mark.parametrize("name", ["Plain", "Made", "Bare", "Empty"])
@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"left": 1}), ((1,), {"wrong": 1}), ((), {"total": 3})]
)
def test_a_wrong_call_is_refused_as_by_the_standard_one(name: str, args: Any, kwargs: Any) -> None:
    expected = outcome(lambda: STANDARD[name](*args, **kwargs))
    assert outcome(lambda: fresh(name)(*args, **kwargs)) == expected
    assert outcome(lambda: COMPILED[name](*args, **kwargs)) == expected


def test_defaults_that_are_made_are_not_shared() -> None:
    assert OURS["Made"]().parts is not OURS["Made"]().parts
    assert OURS["Made"]().own is not OURS["Made"]().own


@value.dataclass(frozen=True, slots=True)
class Sent:
    """At the top of its module, where pickle finds it."""

    name: str
    parts: tuple[int, ...] = ()


@value.dataclass(frozen=True, slots=True)
class Nothing:
    """Has no state at all."""


def test_values_are_replaced_and_matched() -> None:
    match dataclasses.replace(Sent("a"), parts=(3,)):
        case Sent(name, (part,)):
            assert (name, part) == ("a", 3)
        case other:
            pytest.fail(f"{other} is another value")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("sent", [Sent("a", (1, 2)), Nothing()])
def test_values_are_copied_and_sent(sent: Any, protocol: int) -> None:
    assert copy.copy(sent) == copy.deepcopy(sent) == pickle.loads(pickle.dumps(sent, protocol)) == sent


def test_a_constructor_is_compiled_where_many_values_are_made() -> None:
    kind = fresh("Plain")
    kind(1)
    assert not inspect.isfunction(vars(kind)["__init__"])
    values = [kind(number) for number in range(100)]
    assert inspect.isfunction(vars(kind)["__init__"])
    assert values == [kind(number) for number in range(100)]


@pytest.mark.parametrize("left_out", ["keyword", "initial", "slots", "inherited"])
def test_what_is_left_out_is_refused(left_out: str) -> None:
    class Keyword:
        """Takes its field by name only."""

        name: str = field(kw_only=True)

    class Initial:
        """Takes what it does not keep."""

        name: InitVar[str]

    class Closed:
        """Would have a dictionary."""

    class Longer(Sent):
        """Has the fields of another class, and one more."""

        more: int

    kinds = {"keyword": Keyword, "initial": Initial, "slots": Closed, "inherited": Longer}
    with pytest.raises(TypeError, match="standard library"):
        value.dataclass(frozen=True, slots=left_out != "slots")(kinds[left_out])


def test_the_standard_decorator_adds_to_our_fields() -> None:
    @dataclasses.dataclass(frozen=True)
    class Longer(Sent):
        """Has the fields of another class, and one more."""

        more: int = 0

    assert Longer("a", (1,), 2) == Longer("a", (1,), more=2)
    assert dataclasses.astuple(Longer("a", (), 2)) == ("a", (), 2)


def test_the_loader_compiles_no_class_when_it_is_imported() -> None:
    program = (
        "import dataclasses\n"
        "made = []\n"
        "create = dataclasses._process_class\n"
        "def watch(cls, init, *others):\n"
        "    made.extend([cls] if init else [])\n"
        "    return create(cls, init, *others)\n"
        "dataclasses._process_class = watch\n"
        "import kernel_hub.api\n"
        "ours = [cls for cls in made if cls.__module__.startswith('kernel_hub')]\n"
        "assert not ours, ours\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, cwd=ROOT)
