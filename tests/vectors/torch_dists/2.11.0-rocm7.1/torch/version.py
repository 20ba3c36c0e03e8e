from typing import Optional

__version__ = '2.11.0+rocm7.1'
debug = False
cuda: Optional[str] = None
git_version = '0123456789abcdef0123456789abcdef01234567'
hip: Optional[str] = '7.1.25424-4179531dcd'
xpu: Optional[str] = None
