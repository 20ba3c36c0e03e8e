from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.bundle import MAX_FILE_BYTES, WORTH_FROM_FILES, bundle_path, make_bundle, most_bytes, read_bundle
from kernel_hub.errors import InvalidDocumentError

MANY = {f"sub{number % 3}/part{number}.py": b"# %d\n" % number for number in range(40)}


def pieces(content: bytes, length: int = 700) -> list[bytes]:
    return [content[start : start + length] for start in range(0, len(content), length)]


def bundle_of(files: dict[str, bytes]) -> bytes:
    made = make_bundle(files)
    assert made is not None
    return made


def test_a_bundle_gives_back_the_files_it_was_made_of() -> None:
    assert dict(read_bundle(pieces(bundle_of(MANY)), MANY, name="b")) == MANY


def test_a_bundle_of_long_and_unusual_paths_is_right_too() -> None:
    files = {f"{'deep/' * 60}{number}.py": b"1" for number in range(10)} | {
        f"ü{number} x.py": b"2" for number in range(10)
    }
    made = bundle_of(files)
    assert dict(read_bundle([made], files, name="b")) == files
    assert len(made) <= most_bytes(len(content) for content in files.values())


def test_files_may_lie_on_a_disk(tmp_path: Path) -> None:
    for path, content in MANY.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    assert make_bundle({path: tmp_path / path for path in MANY}) == bundle_of(MANY)


def test_equal_builds_have_equal_bundles_in_whatever_order_they_are_listed() -> None:
    assert bundle_of(dict(reversed(MANY.items()))) == bundle_of(MANY)


def test_large_files_stay_out_and_few_files_make_no_bundle() -> None:
    large = {"x.so": b"x" * (MAX_FILE_BYTES + 1)}
    assert bundle_of(MANY | large) == bundle_of(MANY)
    few = dict(list(MANY.items())[: WORTH_FROM_FILES - 1])
    assert make_bundle(few | large) is None


def test_only_what_is_wanted_is_given_out() -> None:
    wanted = {"sub0/part0.py", "absent.py"}
    assert dict(read_bundle([bundle_of(MANY)], wanted, name="b")) == {"sub0/part0.py": MANY["sub0/part0.py"]}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_what_is_no_regular_file_is_passed_over(kind: bytes) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("a.py")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    assert dict(read_bundle([archive.getvalue()], {"a.py"}, name="b")) == {}


def test_a_member_that_is_too_large_is_not_read_into_memory() -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("a.py")
        member.size = MAX_FILE_BYTES + 1
        tar.addfile(member, io.BytesIO(b"x" * member.size))
    assert dict(read_bundle([archive.getvalue()], {"a.py"}, name="b")) == {}


def test_a_bundle_that_is_cut_short_gives_what_came_before_and_then_an_error() -> None:
    made = bundle_of(MANY)
    found = {}
    with pytest.raises(InvalidDocumentError, match="not a bundle"):
        for path, content in read_bundle(pieces(made[: len(made) // 3]), MANY, name="b"):
            found[path] = content
    assert 0 < len(found) < len(MANY)
    assert found.items() <= MANY.items()


@given(st.binary(max_size=3000))
def test_no_bytes_lead_to_anything_but_files_or_a_typed_error(content: bytes) -> None:
    try:
        list(read_bundle([content], {"a"}, name="b"))
    except InvalidDocumentError as error:
        assert "not a bundle" in error.problem


def test_a_bundle_lies_beside_the_builds() -> None:
    assert bundle_path("torch-cpu") == "bundles/torch-cpu.tar"
