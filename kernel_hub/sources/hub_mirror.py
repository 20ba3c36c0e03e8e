"""A server over a registry folder as the target of a mirror: bytes by the LFS protocol, then the commit under its own id.

Keeping a commit's id is a request of this project's own server (see `kernel_hub.server.imports`); the Hub has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kernel_hub.errors import InvalidDocumentError, ResolutionError, SourceUnavailableError
from kernel_hub.model.commit import StoredFile
from kernel_hub.model.document import JsonObject, load_json
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.hub_http import TryFailedError, lowered, origin, translated, transport
from kernel_hub.sources.hub_refusal import RETRIED, Subject, refusal, unavailable
from kernel_hub.sources.hub_sink import HubSink

_MAX_ANSWER_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_LFS_TYPE = "application/vnd.git-lfs+json"
# As many as clients of the Hub ask about at once.
_BATCH = 256


class HubMirror:
    """Copies commits to a server.

    Args:
        sink: The server.
    """

    def __init__(self, sink: HubSink) -> None:
        self._sink = sink
        self._client = sink.client

    @property
    def name(self) -> str:
        """The server's URL."""
        return self._sink.name

    def take(self, repo: RepoId, commit: str, files: Sequence[tuple[StoredFile, Path]], branches: Sequence[str]) -> int:
        """Copy one commit; how many bytes were sent.

        Args:
            repo: The repository; made if absent.
            commit: Its id.
            files: Its files with where their bytes lie.
            branches: The branches that are to point at it.

        Raises:
            InvalidDocumentError: If the server is of another kind and cannot keep commit ids.
            SourceUnavailableError: If it cannot be reached.
        """
        self._sink.create_repo(repo)
        subject = Subject(str(repo), commit)
        sent_bytes = 0
        by_digest = {file.blob.digest: (file, place) for file, place in files}
        ordered = [by_digest[digest] for digest in sorted(by_digest)]
        for start in range(0, len(ordered), _BATCH):
            sent_bytes += self._send_blobs(repo, ordered[start : start + _BATCH], subject)
        document = {
            "files": [
                {"path": file.path, "sha256": file.blob.digest, "size": file.blob.size_bytes, "lfs": file.lfs}
                for file, _ in files
            ],
            "branches": list(branches),
            "message": "Mirrored from a lock",
            "time": 0,
        }
        try:
            self._post(f"api/kernels/{repo}/import/{commit}", document, subject)
        except ResolutionError as error:
            raise InvalidDocumentError(
                self.name,
                f"cannot keep commit ids: {error.message}",
                hint="mirror to a folder, or to a server started with: kernel-hub serve",
            ) from error
        return sent_bytes

    def _send_blobs(self, repo: RepoId, files: Iterable[tuple[StoredFile, Path]], subject: Subject) -> int:
        places = {file.blob.digest: (file.blob.size_bytes, place) for file, place in files}
        objects = [{"oid": digest, "size": size_bytes} for digest, (size_bytes, _) in places.items()]
        answer = self._post(
            f"kernels/{repo}.git/info/lfs/objects/batch",
            {"operation": "upload", "transfers": ["basic"], "hash_algo": "sha256", "objects": objects},
            subject,
            kind=_LFS_TYPE,
        )
        sent_bytes = 0
        for item in answer.objects("objects"):
            actions = item.optional_object("actions")
            if actions is None:
                if item.has("error"):
                    raise InvalidDocumentError(self.name, f"refuses a file: {item.object('error').text('message')}")
                continue
            size_bytes, place = places[item.text("oid")]
            href = actions.object("upload").text("href")
            if origin(href) != origin(self.name):
                raise SourceUnavailableError(f"{self.name} sends uploads to another host ({href})", url=self.name)
            self._send("PUT", href, subject, partial(_chunks, place), {"Content-Length": str(size_bytes)})
            sent_bytes += size_bytes
        return sent_bytes

    def _post(
        self, path: str, document: Mapping[str, Any], subject: Subject, *, kind: str = "application/json"
    ) -> JsonObject:
        url = f"{self.name}/{path}"
        content = json.dumps(document).encode("utf-8")
        answer = self._send("POST", url, subject, lambda: content, {"Content-Type": kind, "Accept": kind})
        return load_json(answer, name=url, limit_bytes=_MAX_ANSWER_BYTES)

    def _send(
        self,
        method: str,
        url: str,
        subject: Subject,
        content: Callable[[], bytes | Iterator[bytes]],
        headers: Mapping[str, str],
    ) -> bytes:
        course = self._client.course()
        while True:
            try:
                return self._try(method, url, subject, content(), headers)
            except TryFailedError as failed:
                course.again(failed)

    def _try(
        self, method: str, url: str, subject: Subject, content: bytes | Iterator[bytes], headers: Mapping[str, str]
    ) -> bytes:
        library, session = transport()
        sent = {**self._client.headers, **headers}
        if self._client.token and method != "PUT":
            # An upload's URL carries its own permission.
            sent["Authorization"] = f"Bearer {self._client.token}"
        with translated(library, url, self._client.place.reach(subject)):
            response = session.request(
                method, url, headers=sent, content=content, timeout=self._client.limits.stall_s, follow_redirects=False
            )
            answer: bytes = response.content
        if response.status_code in RETRIED:
            raise TryFailedError(unavailable(response.status_code, lowered(response.headers), url=url))
        if response.status_code >= 300:
            headers = lowered(response.headers)
            place = self._client.place
            raise refusal(response.status_code, headers, answer, url=url, subject=subject, place=place, writes=True)
        return answer


def _chunks(place: Path) -> Iterator[bytes]:
    with place.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
