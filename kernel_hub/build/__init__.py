"""From kernel sources to builds, and from builds to a published kernel."""
