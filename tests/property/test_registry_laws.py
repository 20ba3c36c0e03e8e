"""Laws of the names and files of a registry."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.commit import Commit, StoredBlob, StoredFile
from kernel_hub.model.repo_path import check_file_path, check_ref_name, check_tree, is_ref_name
from kernel_hub.sources.durable import file_name, name_of_file

TEXTS = st.text(max_size=30) | st.text(alphabet="ab./\\:.-_ \0", max_size=12)
REFS = st.text(alphabet="abAB01._-/+", min_size=1, max_size=20)


@given(TEXTS)
def test_accepted_path_stays_below_any_folder(path: str) -> None:
    try:
        check_file_path(path)
    except InvalidDocumentError:
        return
    root = Path("/base/of/all")
    joined = root / path
    assert joined.is_relative_to(root)
    assert ".." not in joined.parts
    assert joined.relative_to(root).as_posix() == path


@given(REFS, REFS)
def test_file_names_of_different_names_differ_even_where_case_does_not_count(one: str, other: str) -> None:
    assert name_of_file(file_name(one)) == one
    if one != other:
        assert file_name(one).lower() != file_name(other).lower()


@given(REFS)
def test_file_name_of_a_reference_is_one_plain_component(name: str) -> None:
    if is_ref_name(name):
        assert check_ref_name(name) == name
        assert "/" not in file_name(name)
        assert not file_name(name).startswith(".")


@given(st.dictionaries(st.text(alphabet="ab/", min_size=1, max_size=6), st.binary(max_size=4), max_size=6))
def test_commit_is_read_back_as_it_was_made(contents: dict[str, bytes]) -> None:
    files = [StoredFile.of(path, StoredBlob.of(content)) for path, content in contents.items()]
    try:
        for path in contents:
            check_file_path(path)
        check_tree(contents)
    except InvalidDocumentError:
        return
    made = Commit.make(files, parents=[], message="m", time_s=0)
    assert Commit.parse(made.format(), id=made.id, name="manifest") == made
    assert Commit.make(list(reversed(files)), parents=[], message="m", time_s=0) == made
