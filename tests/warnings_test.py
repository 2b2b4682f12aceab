#!/usr/bin/env python3
"""Compiler warnings end the build where $CI is set, and nowhere else unless that is asked for."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(options LANGUAGES NONE)
include({toolchain})
get_directory_property(options COMPILE_OPTIONS)
message(STATUS "options: ${{options}}")
"""


class Warnings(unittest.TestCase):
    def options(self, *arguments, **variables):
        """What each C++ source is compiled with."""
        environment = {name: value for name, value in os.environ.items() if name != "CI"} | variables
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "CMakeLists.txt").write_text(PROJECT.format(toolchain=ROOT / "cmake/Toolchain.cmake"))
            configured = subprocess.run(["cmake", "-S", folder, "-B", f"{folder}/build", *arguments], env=environment, text=True,
                                        capture_output=True, check=True)
        return next(line for line in configured.stdout.splitlines() if "options: " in line)

    def test_they_end_builds_where_ci_is_set(self):
        self.assertIn("-Wextra>", self.options())
        self.assertNotIn("-Werror>", self.options())
        self.assertIn("-Werror>", self.options(CI="1"))
        self.assertIn("-Werror>", self.options("-DSLUICE_WERROR=ON"))
        self.assertNotIn("-Werror>", self.options("-DSLUICE_WERROR=OFF", CI="1"))


if __name__ == "__main__":
    unittest.main()
