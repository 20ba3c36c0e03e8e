"""Laws of digests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.model.digest import Digest, DigestAlgorithm, Manifest, tree_digest

DIGESTS = st.builds(Digest.of, st.binary(max_size=8), st.sampled_from(DigestAlgorithm))
PATHS = st.text(st.characters(codec="utf-8"), max_size=10)
TREES = st.dictionaries(PATHS, DIGESTS, max_size=5)


@given(DIGESTS)
def test_reading_what_was_written_is_identity(digest: Digest) -> None:
    assert Digest.parse(str(digest)) == digest
    assert Digest.from_base64(digest.algorithm, digest.base64) == digest


@given(TREES, TREES)
def test_two_trees_have_one_digest_only_if_they_are_equal(left: dict[str, Digest], right: dict[str, Digest]) -> None:
    assert (tree_digest(left.items()) == tree_digest(right.items())) == (left == right)


@given(TREES, st.randoms())
def test_the_order_of_files_does_not_matter(files: dict[str, Digest], random: object) -> None:
    shuffled = list(files.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert tree_digest(shuffled) == tree_digest(files.items())


@given(st.text("ab", max_size=4), st.text("ab", max_size=4), st.integers(0, 4))
def test_the_digest_separates_what_only_concatenates_alike(left: str, right: str, cut: int) -> None:
    whole = left + right
    other = (whole[:cut], whole[cut:])
    trees = [tree_digest((path, Digest.of(b"")) for path in pair) for pair in ((left, right), other)]
    assert (trees[0] == trees[1]) == (sorted((left, right)) == sorted(other))


@given(TREES.filter(lambda files: len({digest.algorithm for digest in files.values()}) == 1))
def test_a_manifest_has_the_digest_of_its_files(files: dict[str, Digest]) -> None:
    algorithm = next(iter(files.values())).algorithm
    assert Manifest(algorithm, files).tree_digest() == tree_digest(files.items())
