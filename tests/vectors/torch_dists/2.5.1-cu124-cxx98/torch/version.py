from typing import Optional

__version__ = '2.5.1+cu124'
debug = False
cuda: Optional[str] = '12.4'
git_version = '0123456789abcdef0123456789abcdef01234567'
hip: Optional[str] = None
xpu: Optional[str] = None
