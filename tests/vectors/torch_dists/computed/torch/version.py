import subprocess

__version__ = subprocess.check_output(['git', 'describe']).decode()
cuda = '13.0'
hip = None
