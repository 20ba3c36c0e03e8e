"""Laws of hosts and backends: writing and reading are inverse, and asking for a backend twice is asking once."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import VERSIONED_PREFIXES, Backend, BackendKind
from kernel_hub.model.capability import CudaCapability, RocmArch, UnknownArch
from kernel_hub.model.host import Device, Host, describe

words = st.text(min_size=1, max_size=12)
versions = st.builds(lambda *parts: Version(".".join(map(str, parts))), st.integers(0, 30), st.integers(0, 20))
labelled_backends = st.one_of(
    st.sampled_from([kind for kind in BackendKind if kind not in VERSIONED_PREFIXES]).map(Backend),
    st.builds(
        lambda kind, major, minor: Backend(kind, Version(f"{major}.{minor}")),
        st.sampled_from(list(VERSIONED_PREFIXES)),
        st.integers(1, 3000),
        st.integers(0, 9),
    ),
)
backends = labelled_backends | st.sampled_from(list(BackendKind)).map(Backend)
capabilities = st.one_of(
    st.builds(CudaCapability, st.integers(1, 20), st.integers(0, 9)),
    st.sampled_from(["gfx90a", "gfx942", "gfx1100"]).map(RocmArch),
    st.just(UnknownArch("bmg-g21")),
)
devices = st.lists(st.builds(Device, st.integers(0, 8), st.text(max_size=12), capabilities), max_size=3).map(tuple)
FACTS = sorted(Host().to_json().keys() - {"backend_version", "probes"})
hosts = st.builds(
    Host,
    cpu=st.none() | words,
    os=st.none() | words,
    torch=st.none() | versions,
    cxx11_abi=st.none() | st.booleans(),
    tvm_ffi=st.none() | versions,
    backend=st.none() | backends,
    driver=st.none() | words,
    devices=st.none() | devices,
    libc=st.none() | words,
    macos=st.none() | versions,
    python=st.none() | versions,
    free_threaded=st.none() | st.booleans(),
    cpu_features=st.none() | st.lists(words, max_size=3).map(tuple),
    probes=st.dictionaries(st.sampled_from(FACTS), words),
)
asked = st.none() | st.just("auto") | st.sampled_from([kind.value for kind in BackendKind])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(labelled_backends)
def test_a_backends_label_reads_back_as_itself(backend: Backend) -> None:
    assert Backend.parse_label(backend.label) == backend


@given(hosts)
def test_a_host_written_as_json_reads_back_as_itself(host: Host) -> None:
    assert Host.from_json(json.loads(json.dumps(host.to_json()))) == host


@given(hosts, asked)
def test_asking_for_a_backend_twice_is_asking_once(host: Host, backend: str | None) -> None:
    once = host.for_backend(backend)
    assert once.for_backend(backend) == once


@given(hosts, st.sampled_from(list(BackendKind)))
def test_a_named_backend_is_the_one_that_selection_sees(host: Host, kind: BackendKind) -> None:
    seen = host.for_backend(kind.value).backend
    assert seen is not None
    assert seen.kind is kind


@given(hosts)
def test_the_text_of_a_host_has_one_row_for_each_fact(host: Host) -> None:
    rows = describe(host)
    assert sorted(fact for fact, _, _ in rows) == FACTS
    assert all(isinstance(part, str) for row in rows for part in row)


@given(json_values | st.dictionaries(st.sampled_from([*FACTS, "backend_version", "probes"]), json_values))
def test_any_json_value_is_a_host_or_refused_as_a_document(document: object) -> None:
    try:
        host = Host.from_json(document)
    except InvalidDocumentError:
        return
    assert Host.from_json(host.to_json()) == host
