"""The Hub, as a source to read from and a sink to publish to. Only these modules, `hub*`, import huggingface_hub."""

from __future__ import annotations

from kernel_hub.sources.hub_http import Limits
from kernel_hub.sources.hub_sink import HubSink
from kernel_hub.sources.hub_source import HubSource

__all__ = ["HubSink", "HubSource", "Limits"]
