"""What holds for every test of the project, those of the registry's kernels included."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A slow machine is no fault, and a run must find what the run before it found.
settings.register_profile("project", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")
