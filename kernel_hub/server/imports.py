"""The answer to a mirror that copies a commit of another registry here, under the id that it has there.

The Hub has no such request: it is this server's own, `POST /api/kernels/<repo>/import/<commit>`, with the files that the
commit is to hold, whose bytes came by the LFS protocol before, and the branches that are to point at it.
"""

from __future__ import annotations

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.commit import StoredFile
from kernel_hub.model.document import JsonObject
from kernel_hub.model.repo_path import check_file_path, check_ref_name
from kernel_hub.model.requirement import is_commit
from kernel_hub.server import wire
from kernel_hub.server.exchange import Call, JsonReply, Refusal, Reply


def import_commit(call: Call) -> Reply:
    """Take in a commit, or more files of one that was taken in before."""
    commit = call.names["revision"]
    if not is_commit(commit):
        raise Refusal(400, f"{commit!r} is not a commit id")
    body = wire.read_object(call.request.body, "body")
    files = [_file(call, item) for item in body.objects("files")]
    branches = [check_ref_name(branch, document="body") for branch in body.texts("branches")]
    is_wider = call.store.widen_commit(
        call.repo, commit, files, message=body.line("message"), time_s=body.whole("time")
    )
    for branch in branches:
        call.store.point_branch(call.repo, branch, commit)
    return JsonReply({"commitOid": commit, "changed": is_wider})


def _file(call: Call, item: JsonObject) -> StoredFile:
    path = check_file_path(item.text("path"), document="body")
    blob = call.store.stored(wire.read_digest(item, "sha256"), item.size("size"))
    if blob is None:
        raise InvalidDocumentError("body", f"the bytes of {path} have not arrived", location="files")
    return StoredFile(path, blob, lfs=item.flag("lfs"))
