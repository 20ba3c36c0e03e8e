"""The record of what a version offers, as it is published: what every build of the branch offers alike. Pure.

Leaves out: reading a build's sources (see `kernel_hub.build.interface_reader`) and refusing changes (see
`kernel_hub.build.against`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_hub.build.interface import ApiRecord, Layer, Parameters


def common_api(records: Sequence[ApiRecord]) -> ApiRecord:
    """What all of several builds offer; parameters in which they differ are left open.

    Args:
        records: One of each build, of one kernel and version; at least one.
    """
    first = records[0]
    functions = {
        name: _same([record.functions[name] for record in records])
        for name in first.functions
        if all(name in record.functions for record in records)
    }
    layers = {
        name: Layer(
            _same([record.layers[name].init for record in records]),
            _same([record.layers[name].forward for record in records]),
        )
        for name in first.layers
        if all(name in record.layers for record in records)
    }
    return ApiRecord(first.name, first.version, functions, layers)


def api_to_publish(records: Sequence[ApiRecord], old: ApiRecord | None, *, others_stay: bool) -> ApiRecord:
    """The record of a branch after a publication.

    Args:
        records: What the published builds offer, each without a breach of `old`.
        old: What the branch offered before; None if it is new.
        others_stay: Whether builds stay on the branch that are not published now. What is new they may not offer.
    """
    return old if old is not None and others_stay else common_api(records)


def _same(found: Sequence[Parameters]) -> Parameters:
    return found[0] if all(parameters == found[0] for parameters in found) else None
