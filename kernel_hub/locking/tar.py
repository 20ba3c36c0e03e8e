"""The one kind of tar file that archives of kernels are: plain POSIX ustar, regular files only, with names of ours.

Written so that any tar can list and unpack it. Read by this module alone, and strictly: a header that says anything else
than "a regular file of this name and length" ends the reading. There are no links, folders, devices, extensions or long
names to be careful with, because none is understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from kernel_hub.errors import InvalidDocumentError, UnsafePathError

BLOCK_BYTES = 512
MAX_MEMBER_BYTES = (8 << 30) - 1
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(?:/[a-z0-9][a-z0-9._-]*)*")
_MAX_NAME_BYTES = 100
_OCTAL = re.compile(rb"[0-7]+(?=[ \0])")
_CHUNK_BYTES = 1 << 20
_MODE = 0o644


@dataclass(frozen=True, slots=True)
class Member:
    """A file in a tar.

    Attributes:
        name: Its path, '/' separated.
        size_bytes: Its length.
    """

    name: str
    size_bytes: int


class TarWriter:
    """Writes members one after the other; the same members are the same bytes, whoever writes them when."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, name: str, size_bytes: int, chunks: Iterator[bytes]) -> None:
        """Add a file.

        Raises:
            InvalidDocumentError: If its name or length cannot be written, or fewer or more bytes come.
        """
        if not is_name(name) or not 0 <= size_bytes <= MAX_MEMBER_BYTES:
            raise InvalidDocumentError("archive", f"cannot hold {name!r} of {size_bytes} bytes")
        self._file.write(_header(name, size_bytes))
        written_bytes = 0
        for chunk in chunks:
            written_bytes += len(chunk)
            self._file.write(chunk)
        if written_bytes != size_bytes:
            raise InvalidDocumentError("archive", f"{name} has {written_bytes} bytes, not {size_bytes}")
        self._file.write(bytes(-size_bytes % BLOCK_BYTES))

    def finish(self) -> None:
        """Write the end."""
        self._file.write(bytes(2 * BLOCK_BYTES))


class TarReader:
    """Reads members one after the other; each must be read, or passed over, before the next.

    Args:
        file: The tar.
        name: What to call it in errors.
        limit_bytes: How many bytes of content it may hold in all.
        limit_members: How many members it may hold.
    """

    def __init__(self, file: BinaryIO, *, name: str, limit_bytes: int, limit_members: int) -> None:
        self._file = file
        self._name = name
        self._left_bytes = limit_bytes
        self._left_members = limit_members

    def members(self) -> Iterator[tuple[Member, Callable[[], Iterator[bytes]]]]:
        """Every member with what reads its bytes.

        Raises:
            InvalidDocumentError: If the file is no such tar, is cut off, or is too large.
            UnsafePathError: If a member is not a regular file with a plain name, or its name comes twice.
        """
        seen: set[str] = set()
        while True:
            header = self._block("a header")
            if not any(header):
                self._require_end()
                return
            member = self._member(header)
            if member.name in seen:
                raise UnsafePathError(f"{self._name} holds {member.name} twice", hint="get the archive anew")
            seen.add(member.name)
            self._left_members -= 1
            self._left_bytes -= member.size_bytes
            if self._left_members < 0 or self._left_bytes < 0:
                raise InvalidDocumentError(self._name, "holds more than is read of an archive", location=member.name)
            content = self._content(member)
            yield member, lambda content=content: content  # type: ignore[misc]
            for _ in content:
                pass

    def _content(self, member: Member) -> Iterator[bytes]:
        left_bytes = member.size_bytes
        while left_bytes > 0:
            chunk = self._file.read(min(_CHUNK_BYTES, left_bytes))
            if not chunk:
                raise self._cut(member.name)
            left_bytes -= len(chunk)
            yield chunk
        padding_bytes = -member.size_bytes % BLOCK_BYTES
        if len(self._file.read(padding_bytes)) != padding_bytes:
            raise self._cut(member.name)

    def _member(self, header: bytes) -> Member:
        recorded = _number(header[148:156])
        if recorded is None or recorded != _checksum(header):
            raise InvalidDocumentError(self._name, "is not a tar file, or is damaged: a header does not add up")
        name_field = header[:100].split(b"\0", 1)[0]
        name = name_field.decode("ascii", errors="replace")
        if header[257:265] != b"ustar\x0000" or any(header[345:500]):
            raise self._unsafe(name, "has a header of another kind of tar")
        if header[156:157] != b"0" or any(header[157:257]):
            raise self._unsafe(name, "is not a regular file")
        if not is_name(name):
            raise self._unsafe(name, "has a name that no archive of kernels has")
        size_bytes = _number(header[124:136])
        if size_bytes is None:
            raise self._unsafe(name, "has a length that is not a number")
        return Member(name, size_bytes)

    def _block(self, what: str) -> bytes:
        block = self._file.read(BLOCK_BYTES)
        if len(block) != BLOCK_BYTES:
            raise self._cut(what)
        return block

    def _require_end(self) -> None:
        if any(self._block("its end")) or self._file.read(1):
            raise InvalidDocumentError(self._name, "goes on after its end", hint="get the archive anew")

    def _cut(self, where: str) -> InvalidDocumentError:
        return InvalidDocumentError(self._name, f"is cut off in {where}", hint="get the archive anew")

    def _unsafe(self, name: str, problem: str) -> UnsafePathError:
        return UnsafePathError(f"{self._name}: {name!a} {problem}", hint="nothing of it was kept; do not trust it")


def is_name(name: str) -> bool:
    """Whether a text may be a member's name: plain, relative, and of at most 100 bytes."""
    return _NAME.fullmatch(name) is not None and len(name) <= _MAX_NAME_BYTES and ".." not in name


def _header(name: str, size_bytes: int) -> bytes:
    fields = [
        name.encode("ascii").ljust(100, b"\0"),
        b"%07o\0" % _MODE,
        b"%07o\0" % 0,
        b"%07o\0" % 0,
        b"%011o\0" % size_bytes,
        b"%011o\0" % 0,
        b" " * 8,
        b"0",
        bytes(100),
        b"ustar\x0000",
        bytes(32 + 32),
        b"%07o\0" % 0,
        b"%07o\0" % 0,
        bytes(155 + 12),
    ]
    header = b"".join(fields)
    return header[:148] + b"%06o\0 " % _checksum(header) + header[156:]


def _checksum(header: bytes) -> int:
    return sum(header[:148]) + 8 * ord(" ") + sum(header[156:])


def _number(field: bytes) -> int | None:
    found = _OCTAL.match(field)
    return int(found[0], 8) if found else None
