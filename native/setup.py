"""Compile the library beside the package, by the Makefile: a wheel for a platform, of any Python version."""

import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PACKAGE = "tidelog_kernels"


class Build(build_py):
    """Copies the package and compiles the library into it."""

    def run(self):
        super().run()
        folder = Path(PACKAGE) if self.editable_mode else Path(self.build_lib, PACKAGE)
        library = f"LIBRARY={folder / 'libtidelog.so'}"
        subprocess.run(["make", "library", library, f"PYTHON={sys.executable}"], check=True)


class Wheel(bdist_wheel):
    """Marks the wheel: any Python, this platform."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    """A distribution with compiled code."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
