"""What this kernel raises beyond ValueError and TypeError."""


class UnsupportedFeatureError(NotImplementedError):
    """An argument asks for something that this build cannot compute. It is never silently ignored."""
