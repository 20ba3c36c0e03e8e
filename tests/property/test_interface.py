"""Laws of compatible interfaces: what is said not to break callers does not, judged by Python's own rules for calls."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_hub.build.interface import ApiRecord, Kind, Layer, Parameter
from kernel_hub.build.interface_changes import breaches

NAMES = st.sampled_from("abcdef")
DEFAULTS = st.sampled_from([None, "0", "1"])
ORDER = list(Kind)


@st.composite
def parameters(draw: st.DrawFn) -> tuple[Parameter, ...]:
    """Parameters that Python takes: kinds in order, one star each, defaults last among those by position."""
    kinds = sorted(draw(st.lists(st.sampled_from(ORDER), max_size=5)), key=ORDER.index)
    found: list[Parameter] = []
    must_default = False
    for kind in kinds:
        if kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD) and any(item.kind is kind for item in found):
            continue
        free = [name for name in "abcdef" if all(item.name != name for item in found)]
        default = None if kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD) else draw(DEFAULTS)
        if kind in (Kind.POSITIONAL_ONLY, Kind.EITHER):
            default = default or ("0" if must_default else None)
            must_default = default is not None
        found.append(Parameter(draw(st.sampled_from(free)), kind, default))
    return tuple(found)


records = st.builds(
    lambda functions, layers: ApiRecord("axpy", 1, functions, layers),
    st.dictionaries(st.sampled_from(["f", "g"]), st.none() | parameters()),
    st.dictionaries(st.just("L"), st.builds(Layer, st.none() | parameters(), st.none() | parameters())),
)
calls = st.tuples(st.integers(0, 4), st.sets(NAMES))


def of_one(found: tuple[Parameter, ...]) -> ApiRecord:
    return ApiRecord("axpy", 1, {"f": found}, {})


def signature_of(found: tuple[Parameter, ...]) -> inspect.Signature:
    kinds = dict(zip(ORDER, inspect._ParameterKind))
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(item.name, kinds[item.kind], default=empty if item.default is None else item.default)
            for item in found
        ]
    )


def received(found: tuple[Parameter, ...], count: int, names: set[str]) -> Mapping[str, object] | None:
    """What a function's parameters are given by a call, by name and, for those by position only, by place; None if it fails."""
    signature = signature_of(found)
    try:
        bound = signature.bind(*(f"place {index}" for index in range(count)), **{name: name for name in sorted(names)})
    except TypeError:
        return None
    bound.apply_defaults()
    given: dict[str, object] = {}
    for index, item in enumerate(found):
        value = bound.arguments[item.name]
        if item.kind is Kind.VAR_KEYWORD:
            continue
        key = f"place {index}" if item.kind is Kind.POSITIONAL_ONLY else item.name
        given["*" if item.kind is Kind.VAR_POSITIONAL else key] = value
    return given


@given(records)
def test_what_did_not_change_breaks_nothing(record: ApiRecord) -> None:
    assert breaches(record, record) == ()


@given(records)
def test_a_record_survives_being_written_and_read(record: ApiRecord) -> None:
    assert ApiRecord.parse(record.format()) == record


@given(records, st.none() | parameters())
def test_offering_more_breaks_nothing(record: ApiRecord, more: tuple[Parameter, ...] | None) -> None:
    grown = ApiRecord("axpy", 1, {**record.functions, "new": more}, {**record.layers, "New": Layer(more, more)})
    assert breaches(record, grown) == ()
    assert {item.subject for item in breaches(grown, record)} == {"new", "layers.New"}


@given(parameters(), st.sampled_from([Kind.EITHER, Kind.KEYWORD_ONLY]))
def test_an_optional_parameter_more_at_the_end_breaks_nothing(found: tuple[Parameter, ...], kind: Kind) -> None:
    before = [item for item in found if ORDER.index(item.kind) <= ORDER.index(kind)]
    after = [item for item in found if ORDER.index(item.kind) > ORDER.index(kind)]
    if kind is Kind.EITHER and any(item.kind is Kind.VAR_POSITIONAL for item in after):
        # There it would take what was a further argument.
        kind = Kind.KEYWORD_ONLY
        before = [item for item in found if item.kind is not Kind.VAR_KEYWORD]
        after = [item for item in found if item.kind is Kind.VAR_KEYWORD]
    assert breaches(of_one(found), of_one((*before, Parameter("z", kind, "0"), *after))) == ()


@st.composite
def changes(draw: st.DrawFn) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    """Parameters before and after a few edits, so that harmless changes are met often."""
    old = draw(parameters())
    new = list(old)
    for _ in range(draw(st.integers(1, 2))):
        index = draw(st.integers(0, max(0, len(new) - 1)))
        match draw(st.sampled_from(["add", "drop", "rename", "default", "kind"])):
            case "add":
                new.insert(index + draw(st.integers(0, 1)), draw(parameters().filter(bool))[0])
            case "drop" if new:
                del new[index]
            case "rename" if new:
                new[index] = Parameter(draw(NAMES), new[index].kind, new[index].default)
            case "default" if new:
                new[index] = Parameter(new[index].name, new[index].kind, draw(DEFAULTS))
            case "kind" if new:
                new[index] = Parameter(new[index].name, draw(st.sampled_from(ORDER)), new[index].default)
    return old, tuple(new)


def is_possible(found: tuple[Parameter, ...]) -> bool:
    try:
        signature_of(found)
    except ValueError:
        return False
    stars = [item for item in found if item.kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)]
    # `inspect` lets these through, which no definition can have.
    return all(item.default is None for item in stars) and len({item.kind for item in stars}) == len(stars)


EDITS = changes().filter(lambda pair: is_possible(pair[1]))


@settings(max_examples=500)
@given(EDITS, calls)
def test_a_call_means_the_same_after_a_change_that_breaks_nothing(
    edit: tuple[tuple[Parameter, ...], tuple[Parameter, ...]], call: tuple[int, set[str]]
) -> None:
    old, new = edit
    before = received(old, *call)
    if before is None or breaches(of_one(old), of_one(new)):
        return
    after = received(new, *call)
    assert after is not None
    for key, value in before.items():
        # What was taken by place only may have got a name since.
        place = int(key.removeprefix("place ")) if key.startswith("place ") else None
        now = key if place is None or new[place].kind is Kind.POSITIONAL_ONLY else new[place].name
        assert after[now] == value


@settings(max_examples=500)
@given(EDITS, calls)
def test_a_call_that_fails_after_a_change_is_announced(
    edit: tuple[tuple[Parameter, ...], tuple[Parameter, ...]], call: tuple[int, set[str]]
) -> None:
    old, new = edit
    if received(old, *call) is not None and received(new, *call) is None:
        assert breaches(of_one(old), of_one(new))


def test_the_names_are_words_that_python_takes() -> None:
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in "abcdefz")
