"""Laws of locks."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_hub.locking.make import make_lock
from kernel_hub.model.digest import Digest, build_digest
from kernel_hub.model.lock import (
    Declaration,
    Lock,
    LockedBuild,
    LockedKernel,
    parse_wish,
    plain_wish,
    wish_text,
)
from kernel_hub.model.lock_text import format_lock, parse_lock
from kernel_hub.model.metadata import AtVersion
from kernel_hub.model.requirement import AnyVersion, AtRevision, ExactVersion, RepoId, Requirement, Wish
from kernel_hub.model.target import Target
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.locks import bound_settings, connector, registry_in

REPOS = [RepoId("acme", name) for name in ("axpy", "core", "moe", "norm", "topk")]
TARGETS = [Target.parse(text) for text in ("linux-x86_64", "linux-x86_64-cu128-torch2.13-9.0", "darwin-aarch64-metal")]
LABELS = ["torch-cpu", "torch-cuda", "torch-stable-abi211-cpu-x86_64-linux", "torch213-cxx11-cpu-aarch64-linux"]

# How long an example takes depends on what else the machine does.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

numbers = st.integers(0, 999_999_999)
commits = st.text("0123456789abcdef", min_size=40, max_size=40)
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
wishes: st.SearchStrategy[Wish] = st.one_of(
    st.just(AnyVersion()),
    numbers.map(ExactVersion),
    st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).map(AtRevision).map(plain_wish),
    st.sampled_from([">=1", ">=1,<3", "!=2", "==4", "~=1.0"]).map(
        lambda text: Requirement.parse(f"acme/axpy@{text}").wish
    ),
)
builds = st.lists(
    st.builds(
        LockedBuild,
        label=texts,
        archs=st.lists(texts, max_size=3).map(tuple),
        size_bytes=st.integers(0, (1 << 63) - 1),
        digest=st.binary(max_size=4).map(Digest.of),
    ),
    max_size=3,
    unique_by=lambda build: build.label,
).map(tuple)


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    """A whole lock: everything declared or depended on has an entry."""
    kernels: list[LockedKernel] = []
    for repo in draw(st.lists(st.sampled_from(REPOS), unique=True)):
        earlier = [Requirement(kernel.repo, wish) for kernel in kernels for wish in kernel.wishes]
        asked = draw(st.lists(wishes, min_size=1, max_size=4, unique_by=wish_text))
        cut = draw(st.integers(1, len(asked)))
        for part, commit in zip(
            (asked[:cut], asked[cut:]), draw(st.lists(commits, min_size=2, max_size=2, unique=True))
        ):
            if part:
                kernels.append(
                    LockedKernel(
                        repo,
                        commit,
                        draw(numbers),
                        tuple(part),
                        draw(builds),
                        registry=draw(st.sampled_from([None, "acme"])),
                        depends=tuple(draw(st.lists(st.sampled_from(earlier), max_size=3))) if earlier else (),
                        python_depends=tuple(draw(st.lists(texts, max_size=2))),
                    )
                )
    targets = st.lists(st.sampled_from(TARGETS), unique=True).map(lambda some: tuple(sorted(some, key=str)))
    declared = [
        Declaration(Requirement(kernel.repo, kernel.wishes[0]), draw(targets))
        for kernel in {kernel.repo: kernel for kernel in kernels}.values()
        if draw(st.booleans())
    ]
    return Lock(tuple(declared), tuple(kernels), draw(targets))


@unhurried
@given(locks())
def test_reading_is_the_inverse_of_writing(lock: Lock) -> None:
    assert parse_lock(format_lock(lock), name="lock") == lock


@unhurried
@given(locks())
def test_writing_is_a_fixed_point(lock: Lock) -> None:
    text = format_lock(lock)
    assert format_lock(parse_lock(text, name="lock")) == text


@unhurried
@given(locks(), st.randoms(use_true_random=False))
def test_the_order_of_entries_does_not_matter(lock: Lock, chance: st.DataObject) -> None:
    kernels, declared = list(lock.kernels), list(lock.declared)
    chance.shuffle(kernels)  # type: ignore[attr-defined]
    chance.shuffle(declared)  # type: ignore[attr-defined]
    assert format_lock(Lock(tuple(declared), tuple(kernels), lock.targets[::-1])) == format_lock(lock)


@unhurried
@given(wishes)
def test_a_wish_is_read_back_from_its_text(wish: Wish) -> None:
    assert wish_text(parse_wish(REPOS[0], wish_text(wish))) == wish_text(wish)


files = st.dictionaries(texts, st.binary(max_size=3).map(Digest.of), max_size=4)


@unhurried
@given(st.binary(max_size=8), files, st.binary(max_size=8), files)
def test_different_builds_have_different_digests(
    metadata: bytes, some: dict[str, Digest], other_metadata: bytes, other: dict[str, Digest]
) -> None:
    same = (metadata, some) == (other_metadata, other)
    assert (build_digest(metadata, some.items()) == build_digest(other_metadata, other.items())) == same


@st.composite
def published(draw: st.DrawFn) -> dict[RepoId, tuple[list[str], list[RepoId]]]:
    """Kernels with their builds and with dependencies on earlier ones."""
    found: dict[RepoId, tuple[list[str], list[RepoId]]] = {}
    for repo in REPOS[: draw(st.integers(1, 4))]:
        labels = draw(st.lists(st.sampled_from(LABELS), min_size=1, unique=True))
        depends = draw(st.lists(st.sampled_from(list(found)), max_size=2, unique=True)) if found else []
        found[repo] = (labels, depends)
    return found


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(published(), st.data())
def test_locking_again_changes_nothing_and_an_unrelated_kernel_only_adds_its_own(
    kernels: dict[RepoId, tuple[list[str], list[RepoId]]], choice: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        registry = registry_in(folder / "registry")
        for repo, (labels, depends) in kernels.items():
            needs = tuple(AtVersion(item, 1) for item in depends)
            contents = {label: fake_build(label, name=repo.name, kernel_depends=needs) for label in labels}
            publish_fake_kernel(registry, repo, builds=contents)
        publish_fake_kernel(registry, "zoo/unrelated")
        asked = choice.draw(st.lists(st.sampled_from(list(kernels)), min_size=1, unique=True))
        declared = [Declaration(Requirement(repo, ExactVersion(1))) for repo in asked]
        one = connector(bound_settings(folder / "one", folder / "registry", "acme", "zoo"))
        two = connector(bound_settings(folder / "two", folder / "registry", "acme", "zoo"))

        lock = make_lock(declared, one).lock
        assert parse_lock(format_lock(lock), name="lock") == lock
        assert format_lock(make_lock(declared[::-1], two).lock) == format_lock(lock)
        assert make_lock(declared, one, previous=lock).lock == lock

        more = make_lock([*declared, Declaration(Requirement.parse("zoo/unrelated@v1"))], two, previous=lock).lock
        added = [kernel for kernel in more.kernels if kernel not in lock.kernels]
        assert [str(kernel.repo) for kernel in added] == ["zoo/unrelated"]
        assert replace(more, kernels=lock.kernels, declared=lock.declared) == lock
