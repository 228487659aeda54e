"""Python imports this when a program starts under `cans run`: this folder is first in PYTHONPATH.

A `sitecustomize` that the environment has itself is run as well, and the folder leaves `sys.path`.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [each for each in sys.path if os.path.abspath(each or os.curdir) != _HERE]

_other = PathFinder.find_spec("sitecustomize", sys.path)
if _other is not None and _other.loader is not None:
    _module = module_from_spec(_other)
    sys.modules["sitecustomize"] = _module
    _other.loader.exec_module(_module)

try:
    from cans.program.hook import install
except ImportError as _error:
    print(f"cans: not installed for {sys.executable}, run as before: {_error}", file=sys.stderr)
else:
    install()
