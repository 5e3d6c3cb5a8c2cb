"""Compile the library beside the package, by the Makefile: a wheel for a platform, of any Python version."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
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
        make, library = shutil.which("make"), folder / "libtidelog.so"
        if platform.system() != "Linux" or platform.machine() != "x86_64":
            raise SystemExit("tidelog-kernels is for Linux on x86-64. fix: use tidelog without it")
        if make is None or shutil.which(shlex.split(os.environ.get("CXX", "g++"))[0]) is None:
            raise SystemExit("tidelog-kernels is compiled by make and g++. fix: install both; tidelog runs without")
        with tempfile.TemporaryDirectory() as objects:
            words = [make, "library", f"LIBRARY={library}", f"BUILD_ROOT={objects}", f"PYTHON={sys.executable}"]
            subprocess.run(words, check=True)


class Wheel(bdist_wheel):
    """Marks the wheel: any Python, this platform."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    """A distribution with compiled code."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
