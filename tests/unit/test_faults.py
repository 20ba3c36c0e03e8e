"""The faults that other tests rely on are the faults they say they are."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from kernel_hub.model.requirement import RepoId
from tests.support import faults as fault
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer
from tests.support.hub_layout import HubLayout
from tests.support.raw_http import ask

REPO = RepoId("acme", "axpy")
FILE = "/kernels/acme/axpy/resolve/v1/notes.txt"
LARGE = "/kernels/acme/axpy/resolve/v1/k.so"
TREE = "/api/kernels/acme/axpy/tree/v1"
CONTENT = b"0123456789"


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], faults: Faults) -> HubServer:
    hub = start_hub(wrap=faults)
    publish_fake_kernel(hub.registry, REPO, extra_files={"notes.txt": CONTENT, "k.so": CONTENT})
    return hub


def test_without_faults_nothing_is_changed(hub: HubServer, faults: Faults) -> None:
    assert ask(hub.url, FILE).content == CONTENT
    assert faults.hits == 0


def test_fault_strikes_only_what_matches(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.busy(503), "/refs", method="GET", times=1)
    assert ask(hub.url, FILE).status == 200
    assert ask(hub.url, "/api/kernels/acme/axpy/refs", method="HEAD").status == 200
    statuses = [ask(hub.url, "/api/kernels/acme/axpy/refs").status for _ in range(3)]
    assert statuses == [503, 200, 200]
    assert faults.hits == 1


def test_fault_strikes_every_third(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.status(500), every=3)
    assert [ask(hub.url, FILE).status for _ in range(7)] == [200, 200, 500, 200, 200, 500, 200]
    faults.clear()
    assert [ask(hub.url, FILE).status for _ in range(3)] == [200] * 3


def test_busy_says_when_to_come_again(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.busy(retry_after_s=7))
    answer = ask(hub.url, FILE)
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")


def test_page_of_html_is_no_json(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.web_page())
    answer = ask(hub.url, TREE)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html")
    assert answer.content.startswith(b"<!doctype html>")


def test_late_answer_is_right(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.late(0.01))
    assert ask(hub.url, FILE).content == CONTENT


def test_connection_is_closed_without_an_answer(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.absent)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask(hub.url, FILE)


def test_body_is_cut_where_it_is_told(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.cut(4))
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(hub.url, FILE)
    assert caught.value.partial == b"0123"


def test_one_bit_is_wrong_and_nothing_else(hub: HubServer, faults: Faults) -> None:
    right = ask(hub.url, FILE)
    faults.add(fault.flipped_at(3))
    wrong = ask(hub.url, FILE)
    assert wrong.content == b"0122456789"
    assert {k: v for k, v in wrong.headers.items() if k != "date"} == {
        k: v for k, v in right.headers.items() if k != "date"
    }


@pytest.mark.parametrize("delta_bytes", [-3, 3])
def test_length_is_wrong(hub: HubServer, faults: Faults, delta_bytes: int) -> None:
    faults.add(fault.misannounced(delta_bytes))
    announced = str(len(CONTENT) + delta_bytes)
    assert ask(hub.url, LARGE, method="HEAD").headers["x-linked-size"] == announced
    if delta_bytes < 0:
        assert ask(hub.url, FILE).content == CONTENT[:delta_bytes]
    else:
        with pytest.raises(http.client.IncompleteRead):
            ask(hub.url, FILE)


def test_headers_are_replaced_and_removed(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.relabelled(etag='"wrong"', x_repo_commit=None))
    answer = ask(hub.url, FILE)
    assert answer.headers["etag"] == '"wrong"'
    assert "x-repo-commit" not in answer.headers


def test_stalled_answer_goes_on_or_never_comes(hub: HubServer, faults: Faults) -> None:
    released = threading.Event()
    faults.add(fault.stall(4, released=released))
    connection = http.client.HTTPConnection(urlsplit(hub.url).netloc, timeout=30)
    connection.request("GET", FILE)
    response = connection.getresponse()
    assert response.read(4) == b"0123"
    released.set()
    with pytest.raises(http.client.IncompleteRead):
        response.read()
    connection.close()


def test_stall_ends_when_the_client_goes_away(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.stall(None))
    connection = http.client.HTTPConnection(urlsplit(hub.url).netloc, timeout=30)
    connection.request("GET", FILE)
    threading.Thread(target=connection.close).start()
    hub.log.wait_for(1)
    assert hub.log.records[0].status == 0


def test_listing_is_rewritten(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.traversal("../../x"), times=1)
    faults.add(fault.oversized_listing(5000))
    assert "../../x" in [row["path"] for row in ask(hub.url, TREE).document]
    assert len(ask(hub.url, TREE).document) > 5000


def test_redirect_keeps_the_path(hub: HubServer, faults: Faults) -> None:
    faults.add(fault.moved("http://127.0.0.1:9", 307))
    answer = ask(hub.url, f"{TREE}?recursive=true")
    assert (answer.status, answer.headers["location"]) == (307, f"http://127.0.0.1:9{TREE}?recursive=true")


def test_hub_layout_serves_small_files_by_its_cache_and_large_ones_elsewhere(
    start_hub: Callable[..., HubServer], hub: HubServer
) -> None:
    front = start_hub(wrap=HubLayout(hub.url).around)
    small = ask(front.url, FILE)
    assert (small.status, small.headers["location"]) == (307, f"/api/resolve-cache{FILE}")
    assert ask(front.url, small.headers["location"]).content == CONTENT
    large = ask(front.url, LARGE, method="HEAD")
    assert (large.status, large.headers["x-linked-size"]) == (302, "10")
    parts = urlsplit(large.headers["location"])
    assert f"{parts.scheme}://{parts.netloc}" == hub.url
    assert ask(hub.url, f"{parts.path}?{parts.query}").content == CONTENT
    assert ask(front.url, f"{FILE}x").status == 404
