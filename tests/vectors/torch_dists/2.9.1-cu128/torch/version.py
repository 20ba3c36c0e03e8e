from typing import Optional

__version__ = '2.9.1'
debug = False
cuda: Optional[str] = '12.8'
git_version = '0123456789abcdef0123456789abcdef01234567'
hip: Optional[str] = None
xpu: Optional[str] = None
