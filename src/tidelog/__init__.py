"""tidelog learns to act from a log, and says how far the result can be trusted.

`__init__.pyi` has the names. Each loads what it needs when it is first used (PEP 562): `import tidelog` stays quick.
"""

import ast
import importlib
import pkgutil
from typing import Any

from tidelog._machine import import_without_gc

__version__ = "0.1.0"
_HOME = {
    alias.name: node.module
    for node in ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"").body  # also inside an archive
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
__all__ = sorted(name for name, home in _HOME.items() if home != "tidelog")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        problem = f"module 'tidelog' has no attribute {name!r}"
        if not name.startswith("_"):
            problem += f": {importlib.import_module('tidelog.errors').nearest(name, __all__)}"
        raise AttributeError(problem)
    if _HOME[name] == "tidelog":  # a module
        return importlib.import_module(f"tidelog.{name}")
    value = globals()[name] = getattr(import_without_gc(_HOME[name]), name)  # later uses do not come here
    return value


def __dir__() -> list[str]:
    return [*_HOME, "__version__"]
