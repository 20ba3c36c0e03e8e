__version__ = '2.5.0a0+x.nv24.08'
debug = False
cuda = '12.6'
git_version = '0123456789abcdef0123456789abcdef01234567'
hip = None
