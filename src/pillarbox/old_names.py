"""The import names of version 1.0: `topos`, `hosts` and `experiments` without `pillarbox`.

An installation adds the folder of these packages to the end of Python's path. A package that is
imported from there by its old name calls `import_for`, which finds out whether another package has
the name. If so, the other package is imported; if not, the old name becomes a second name of the
same module, with a DeprecationWarning.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType


def import_for(name: str, file: str) -> None:
    """Import the package that a program means by an old name; `file` is that of the caller."""
    package = importlib.import_module(f"pillarbox.{name}")
    del sys.modules[name]
    other = _other_package(name, {os.path.realpath(one) for one in (file, str(package.__file__))})
    if other is not None:
        sys.modules[name] = module = importlib.util.module_from_spec(other)
        if other.loader is not None:  # None: a folder without __init__.py
            other.loader.exec_module(module)
        return
    warnings.warn(
        f"import pillarbox.{name} instead of {name}: version 2 removes the old name",
        DeprecationWarning,
        stacklevel=3,
    )
    sys.modules[name] = package
    if not any(isinstance(finder, _Submodules) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Submodules())


def _other_package(name: str, own: set[str]) -> ModuleSpec | None:
    """Return the spec of a package with this name in other files, None if there is none."""
    path = [
        folder
        for folder in sys.path
        if os.path.realpath(os.path.join(folder, name, "__init__.py")) not in own  # noqa: PTH118
    ]
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


class _Submodules:
    """Finder and loader of the submodules of old names: the same modules as by the new names."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        top, dot, _ = name.partition(".")
        package = sys.modules.get(f"pillarbox.{top}")
        if dot and package is not None and sys.modules.get(top) is package:
            return ModuleSpec(name, self)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"pillarbox.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import has replaced the module's own spec by that of the old name.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
