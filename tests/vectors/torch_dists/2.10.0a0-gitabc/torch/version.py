from typing import Optional

__version__ = '2.10.0a0+gitabc'
debug = False
cuda: Optional[str] = '12.9'
git_version = '0123456789abcdef0123456789abcdef01234567'
hip: Optional[str] = None
xpu: Optional[str] = None
