"""`dataclass` for classes with slots, which compiles nothing at import and a constructor only where many values are made.

The standard decorator writes and compiles the source of up to ten methods for each class, which was most of what importing
this package cost. Here the methods that need no source are closures; the first values are filled field by field, and the
constructor is compiled when it pays. Type checkers see the standard decorator; `dataclasses.fields`, `replace` and
`astuple`, `match`, `copy` and `pickle` work as with it.

Leaves out what no class here uses, and refuses it: classes without slots, fields had from another class, keyword-only and
init-only fields.

Implements docs/decisions/0014-values-compiled-when-it-pays.md.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

# Compiling takes as long as filling about that many values.
_COMPILED_AFTER = 20

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool, order: bool = False, eq: bool = True) -> Callable[[type], type]:
        """See `dataclasses.dataclass`; `slots` must be true."""
        if not slots:
            raise TypeError("a class without slots takes the standard library's decorator")
        return lambda cls: _dataclass(cls, frozen=frozen, order=order, eq=eq)


def _dataclass(cls: type[Any], *, frozen: bool, order: bool, eq: bool) -> type[Any]:
    # Python itself sets `__hash__` to None in a class that has an `__eq__` of its own; nobody wrote that.
    own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
    if any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__):
        raise TypeError(f"{cls.__qualname__}: only the standard library's decorator adds to another class's fields")
    # The standard decorator finds the fields and makes the slots; neither compiles anything.
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(made)
    _refuse_what_is_left_out(made, fields)
    methods: dict[str, Any] = {"__init__": _Constructor(made, fields), "__repr__": _representation(fields)}
    if frozen:
        methods |= {"__setattr__": _refuse_to_assign, "__delattr__": _refuse_to_delete, **_stored(fields)}
    if eq:
        methods |= _compared(fields, frozen=frozen)
    if order:
        methods |= _ordered(fields)
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    parameters = made.__dataclass_params__
    parameters.init = parameters.repr = True
    parameters.eq, parameters.order, parameters.frozen = eq, order, frozen
    return made  # type: ignore[no-any-return]


def _refuse_what_is_left_out(made: Any, fields: tuple[dataclasses.Field[Any], ...]) -> None:
    names = {field.name for field in fields}
    for name, field in made.__dataclass_fields__.items():
        # What is no field is a class variable, or an argument of the constructor only.
        if (name in names and field.kw_only) or (name not in names and "InitVar" in str(field.type)):
            raise TypeError(f"{made.__qualname__}.{name}: only the standard library's decorator knows such fields")


class _Constructor:
    """Stands for a class's `__init__` until many values were made or someone looks at it; then puts the real one in its place."""

    __slots__ = ("_fields", "_left", "_made", "_parameters", "_stores")

    def __init__(self, made: type[Any], fields: tuple[dataclasses.Field[Any], ...]) -> None:
        self._made = made
        self._fields = fields
        self._left = _COMPILED_AFTER
        self._parameters: tuple[str, ...] = ()
        self._stores: tuple[tuple[str, Callable[[Any, Any], None]], ...] = ()

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        # What asks for another reason than to make a value, such as `inspect`, reads the constructor's arguments.
        if not self._left or not isinstance(instance, self._made):
            constructor = self._compile()
            return constructor if instance is None else constructor.__get__(instance, owner)
        if self._left == _COMPILED_AFTER:
            self._parameters = tuple(field.name for field in self._fields if field.init)
            # A slot's own setter, because a frozen class refuses assignments.
            self._stores = tuple((field.name, getattr(self._made, field.name).__set__) for field in self._fields)
        self._left -= 1
        return partial(self._fill, instance)

    def _compile(self) -> Any:
        # Two threads may both come here; what they make is the same.
        constructor = _compiled(self._made, self._fields)
        type.__setattr__(self._made, "__init__", constructor)
        return constructor

    def _fill(self, instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As the constructor, argument by argument. What is not in order is left to the constructor to refuse."""
        given = dict(zip(self._parameters, args, strict=False))
        if len(args) > len(self._parameters) or not kwargs.keys() <= set(self._parameters) - given.keys():
            return self._compile()(instance, *args, **kwargs)
        given |= kwargs
        for field, (name, store) in zip(self._fields, self._stores, strict=True):
            if name in given:
                store(instance, given[name])
            elif field.default_factory is not dataclasses.MISSING:
                store(instance, field.default_factory())
            elif field.default is not dataclasses.MISSING:
                store(instance, field.default)
            elif field.init:
                return self._compile()(instance, *args, **kwargs)
        if hasattr(self._made, "__post_init__"):
            instance.__post_init__()
        return None


class _Absent:
    """Stands for an argument that was not given, where the default is made anew for each value."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT = _Absent()


def _compiled(made: Any, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    """The constructor, as a person would write it. Its outer function brings what is no literal."""
    outer: dict[str, Any] = {"_absent": _ABSENT}
    parameters, lines = ["self"], []
    for number, field in enumerate(fields):
        value = field.name
        if field.default_factory is not dataclasses.MISSING:
            outer[f"_make{number}"] = field.default_factory
            value = f"_make{number}()" + (f" if {field.name} is _absent else {field.name}" if field.init else "")
        elif field.default is not dataclasses.MISSING:
            outer[f"_default{number}"] = field.default
            value = field.name if field.init else f"_default{number}"
        elif not field.init:
            # `__post_init__` gives it a value.
            continue
        # A slot's own setter, because a frozen class refuses assignments.
        outer[f"_set{number}"] = getattr(made, field.name).__set__
        lines.append(f"_set{number}(self, {value})")
        if field.init:
            parameters.append(field.name + _default(field, number))
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n  ".join(lines or ["pass"])
    text = f"def outer({', '.join(outer)}):\n def __init__({', '.join(parameters)}):\n  {body}\n return __init__"
    scope: dict[str, Any] = {}
    exec(text, vars(sys.modules[made.__module__]), scope)
    constructor = scope["outer"](**outer)
    constructor.__qualname__ = f"{made.__qualname__}.__init__"
    constructor.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    return constructor


def _default(field: dataclasses.Field[Any], number: int) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "=_absent"
    return "" if field.default is dataclasses.MISSING else f"=_default{number}"


def _key(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The named fields of a value, as a tuple."""
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    # Of one name alone, `attrgetter` gives the value itself.
    return get if len(names) > 1 else lambda value: (get(value),)


def _representation(fields: tuple[dataclasses.Field[Any], ...]) -> Callable[[Any], str]:
    names = [field.name for field in fields if field.repr]

    def representation(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return representation


def _stored(fields: tuple[dataclasses.Field[Any], ...]) -> dict[str, Any]:
    names = [field.name for field in fields]

    def state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def set_state(self: Any, values: list[Any]) -> None:
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": state, "__setstate__": set_state}


def _refuse_to_assign(self: Any, name: str, value: Any) -> None:
    del self, value
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    del self
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _compared(fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool) -> dict[str, Any]:
    key = _key([field.name for field in fields if field.compare])
    hashed_key = _key([field.name for field in fields if (field.compare if field.hash is None else field.hash)])

    def equal(self: Any, other: Any) -> Any:
        return key(self) == key(other) if type(other) is type(self) else NotImplemented

    def hashed(self: Any) -> int:
        return hash(hashed_key(self))

    return {"__eq__": equal, "__hash__": hashed if frozen else None}


def _ordered(fields: tuple[dataclasses.Field[Any], ...]) -> dict[str, Any]:
    key = _key([field.name for field in fields if field.compare])

    def below(self: Any, other: Any) -> Any:
        return key(self) < key(other) if type(other) is type(self) else NotImplemented

    def at_most(self: Any, other: Any) -> Any:
        return key(self) <= key(other) if type(other) is type(self) else NotImplemented

    def above(self: Any, other: Any) -> Any:
        return key(self) > key(other) if type(other) is type(self) else NotImplemented

    def at_least(self: Any, other: Any) -> Any:
        return key(self) >= key(other) if type(other) is type(self) else NotImplemented

    return {"__lt__": below, "__le__": at_most, "__gt__": above, "__ge__": at_least}
