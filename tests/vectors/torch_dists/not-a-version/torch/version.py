__version__ = 'main@{yesterday}'
cuda = 'latest'
hip = None
