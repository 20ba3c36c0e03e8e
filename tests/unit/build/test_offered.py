"""What a version's record says when its builds differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.build.interface import ApiRecord, Layer, Parameter, Parameters
from kernel_hub.build.interface_changes import breaches
from kernel_hub.build.offered import api_to_publish, common_api

X: Parameters = (Parameter("x"),)
XY: Parameters = (Parameter("x"), Parameter("y", default="1"))


def record(functions: dict[str, Parameters], layers: dict[str, Layer] | None = None) -> ApiRecord:
    return ApiRecord("axpy", 1, functions, layers or {})


def test_what_one_build_lacks_is_not_promised() -> None:
    assert common_api([record({"a": X, "b": X}), record({"a": X})]) == record({"a": X})


def test_parameters_in_which_builds_differ_are_left_open() -> None:
    assert common_api([record({"a": X}), record({"a": XY})]) == record({"a": None})
    layers = [{"L": Layer(X, X)}, {"L": Layer(X, XY)}]
    assert common_api([record({}, layer) for layer in layers]) == record({}, {"L": Layer(X, None)})


def test_what_is_new_is_promised_when_no_older_build_stays() -> None:
    old, new = record({"a": X}), record({"a": XY, "b": X})
    assert api_to_publish([new], old, others_stay=True) == old
    assert api_to_publish([new], old, others_stay=False) == new
    assert api_to_publish([new], None, others_stay=False) == new


parameters = st.sampled_from([None, X, XY])
records = st.builds(
    lambda functions, layers: record(functions, {name: Layer(*pair) for name, pair in layers.items()}),
    st.dictionaries(st.sampled_from("abc"), parameters),
    st.dictionaries(st.sampled_from("LM"), st.tuples(parameters, parameters)),
)


@given(st.lists(records.filter(lambda found: None not in found.functions.values()), min_size=1, max_size=4))
def test_every_build_keeps_what_is_promised(found: list[ApiRecord]) -> None:
    promised = common_api(found)
    left_open = {name for name, known in promised.functions.items() if known is None}
    for item in found:
        assert [breach for breach in breaches(promised, item) if breach.subject not in left_open] == []
