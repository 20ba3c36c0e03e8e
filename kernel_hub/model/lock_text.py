"""The text of `kernel-hub.lock`: TOML of one form, so that equal locks are equal bytes and differences read well.

Grammar and rules: docs/reference/lock-file.md. Reading is strict: an unknown key is an error, because a key that a reader
skips could be the one that restricts. Unresolved merges, cut files and newer formats are recognised as such.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.digest import Digest
from kernel_hub.model.document import JsonObject
from kernel_hub.model.lock import (
    Declaration,
    Lock,
    LockedBuild,
    LockedKernel,
    parse_wish,
    sorted_targets,
    wish_text,
)
from kernel_hub.model.requirement import RepoId, Requirement, Wish, is_commit
from kernel_hub.model.target import Target

FORMAT = 1
MAX_BYTES = 16 << 20
_HEADER = (
    "# The kernels of this project, exactly. Written by `kernel-hub lock`: change pyproject.toml, not this file.\n"
)
_CONFLICT = re.compile(rb"^(?:<{7}|={7}|>{7}|\|{7})(?: |\r?$)", re.MULTILINE)
_AGAIN = "restore it from version control, or make it anew: kernel-hub lock"


def format_lock(lock: Lock) -> bytes:
    """The one text of a lock."""
    return "\n".join(
        [*_header(lock), *(line for kernel in lock.kernels for line in _kernel_lines(kernel)), ""]
    ).encode()


def parse_lock(content: bytes, *, name: str) -> Lock:
    """Read a lock.

    Args:
        content: The file's bytes.
        name: What to call it in errors, i.e. its path.

    Raises:
        InvalidDocumentError: Naming the line or the key at fault.
    """
    top = JsonObject(_load(content, name), name)
    _require_format(top, name)
    top.only("format", "targets", "dependencies", "kernel")
    declared = top.optional_object("dependencies")
    lock = Lock(
        declared=tuple(_declaration(declared, repo) for repo in declared.names()) if declared else (),
        kernels=tuple(_kernel(item) for item in top.objects("kernel", default=())),
        targets=_targets(top, "targets"),
    )
    _require_whole(lock, top)
    return lock


def _load(content: bytes, name: str) -> Mapping[str, Any]:
    if len(content) > MAX_BYTES:
        raise InvalidDocumentError(name, f"is longer than {MAX_BYTES} bytes")
    conflict = _CONFLICT.search(content)
    if conflict:
        line = content.count(b"\n", 0, conflict.start()) + 1
        raise InvalidDocumentError(
            name,
            "holds an unresolved merge conflict",
            location=f"line {line}",
            hint="take either side of the conflict, then run: kernel-hub lock",
        )
    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidDocumentError(name, "is not UTF-8", location=f"line {line}", hint=_AGAIN) from error
    except tomllib.TOMLDecodeError as error:
        problem, location = _place(str(error), content)
        raise InvalidDocumentError(name, f"is not TOML: {problem}", location=location, hint=_AGAIN) from error
    except RecursionError as error:
        raise InvalidDocumentError(name, "is not TOML: nested too deep", hint=_AGAIN) from error


def _place(message: str, content: bytes) -> tuple[str, str]:
    found = re.fullmatch(r"(.*) \(at (line [0-9]+, column [0-9]+|end of document)\)", message, re.DOTALL)
    if not found:
        return message, ""
    if found[2] == "end of document":
        last = content.count(b"\n") + 1
        return f"{found[1]}; the file seems to be cut off", f"line {last}"
    return found[1], found[2]


def _require_format(top: JsonObject, name: str) -> None:
    version = top.whole("format")
    if version > FORMAT:
        raise InvalidDocumentError(
            name,
            f"format {version} is newer than this release reads (up to {FORMAT})",
            location="format",
            hint="upgrade kernel_hub: pip install -U kernel-hub",
        )
    if version < 1:
        raise top.fault("format", f"{version} is not a format")


def _declaration(declared: JsonObject, repo_text: str) -> Declaration:
    repo = _repo(declared, repo_text, repo_text)
    item = declared.object(repo_text)
    item.only("requirement", "targets")
    return Declaration(
        Requirement(repo, _wish(item, "requirement", repo, item.text("requirement"))), _targets(item, "targets")
    )


def _kernel(item: JsonObject) -> LockedKernel:
    item.only(
        "repo", "registry", "version", "commit", "requirements", "depends", "python-depends", "build-count", "build"
    )
    repo = _repo(item, "repo", item.text("repo"))
    commit = item.text("commit")
    if not is_commit(commit):
        raise item.fault("commit", f"{commit!r} is not a commit id (40 or 64 lower-case hexadecimal digits)")
    registry = item.optional_text("registry")
    if registry not in (None, repo.namespace):
        raise item.fault("registry", f"{registry!r} is not the namespace of {repo}")
    builds = tuple(_build(build) for build in item.objects("build", default=()))
    if len({build.label for build in builds}) != len(builds):
        raise item.fault("build", "a label stands twice")
    if len(builds) != item.whole("build-count"):
        # The file was cut off at the end of an entry, or an entry was taken out by hand.
        raise item.fault("build-count", f"is {item.whole('build-count')}, but {len(builds)} builds follow")
    wishes = item.texts("requirements")
    return LockedKernel(
        repo=repo,
        commit=commit,
        version=item.whole("version"),
        wishes=tuple(_wish(item, f"requirements[{index}]", repo, text) for index, text in enumerate(wishes)),
        builds=builds,
        registry=registry,
        depends=tuple(
            _depend(item, f"depends[{index}]", text) for index, text in enumerate(item.texts("depends", default=()))
        ),
        python_depends=item.texts("python-depends", default=()),
    )


def _build(item: JsonObject) -> LockedBuild:
    item.only("label", "archs", "size", "digest")
    try:
        digest = Digest.parse(item.text("digest"))
    except InvalidDocumentError as error:
        raise item.fault("digest", error.problem) from error
    return LockedBuild(item.text("label"), item.texts("archs", default=()), item.size("size"), digest)


def _targets(item: JsonObject, key: str) -> tuple[Target, ...]:
    found = []
    for index, text in enumerate(item.texts(key, default=())):
        try:
            found.append(Target.parse(text))
        except InvalidDocumentError as error:
            raise item.fault(f"{key}[{index}]", error.problem) from error
    return sorted_targets(found)


def _repo(item: JsonObject, key: str, text: str) -> RepoId:
    try:
        return RepoId.parse(text)
    except InvalidDocumentError as error:
        raise item.fault(key, error.problem) from error


def _wish(item: JsonObject, key: str, repo: RepoId, text: str) -> Wish:
    try:
        return parse_wish(repo, text)
    except InvalidDocumentError as error:
        raise item.fault(key, error.problem) from error


def _depend(item: JsonObject, key: str, text: str) -> Requirement:
    name, at, wish = text.partition("@")
    if not at:
        raise item.fault(key, f"{text!r} is not of the form 'org/name@v1'")
    repo = _repo(item, key, name)
    return Requirement(repo, _wish(item, key, repo, wish))


def _require_whole(lock: Lock, top: JsonObject) -> None:
    """Refuse a lock in which something is required that is not there: it was cut off or edited."""
    seen: set[tuple[RepoId, str]] = set()
    answered: set[tuple[RepoId, str]] = set()
    for kernel in lock.kernels:
        if (kernel.repo, kernel.commit) in seen:
            raise top.fault("kernel", f"{kernel.repo} at commit {kernel.commit} stands twice")
        seen.add((kernel.repo, kernel.commit))
        for wish in kernel.wishes:
            if (kernel.repo, wish_text(wish)) in answered:
                raise top.fault("kernel", f"two entries answer {kernel.repo}@{wish_text(wish)}")
            answered.add((kernel.repo, wish_text(wish)))
    wanted = [(item.requirement, "dependencies") for item in lock.declared]
    wanted += [(item, f"the dependencies of {kernel}") for kernel in lock.kernels for item in kernel.depends]
    for requirement, where in wanted:
        if (requirement.repo, wish_text(requirement.wish)) not in answered:
            raise top.fault(
                "kernel", f"{requirement.repo}@{wish_text(requirement.wish)} stands in {where}, but has no entry"
            )


def _header(lock: Lock) -> Iterator[str]:
    yield f"{_HEADER}format = {FORMAT}"
    if lock.targets:
        yield f"targets = {_list(map(str, lock.targets))}"
    if lock.declared:
        yield "\n[dependencies]"
        for item in lock.declared:
            fields = f"requirement = {_text(wish_text(item.requirement.wish))}"
            if item.targets:
                fields += f", targets = {_list(map(str, sorted_targets(item.targets)))}"
            yield f"{_text(str(item.requirement.repo))} = {{ {fields} }}"


def _kernel_lines(kernel: LockedKernel) -> Iterator[str]:
    yield f"\n[[kernel]]\nrepo = {_text(str(kernel.repo))}"
    if kernel.registry:
        yield f"registry = {_text(kernel.registry)}"
    yield f"requirements = {_list(wish_text(wish) for wish in kernel.wishes)}"
    yield f"version = {kernel.version}"
    yield f"commit = {_text(kernel.commit)}"
    if kernel.depends:
        yield f"depends = {_list(f'{item.repo}@{wish_text(item.wish)}' for item in kernel.depends)}"
    if kernel.python_depends:
        yield f"python-depends = {_list(kernel.python_depends)}"
    yield f"build-count = {len(kernel.builds)}"
    for build in kernel.builds:
        yield f"\n[[kernel.build]]\nlabel = {_text(build.label)}"
        if build.archs:
            yield f"archs = {_list(build.archs)}"
        yield f"size = {build.size_bytes}"
        yield f"digest = {_text(str(build.digest))}"


def _text(value: str) -> str:
    # JSON's escapes are TOML's, except for the one control character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"
