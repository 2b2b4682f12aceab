"""The site is built strictly: the repository's pages pass, and a link to nothing, or to no heading, does not."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import docs_site  # noqa: E402

PYTHON = pathlib.Path(os.environ.get("SLUICE_DEPS") or pathlib.Path.home() / ".cache/sluice") / "docs/bin/python"
CONFIGURATION = "site_name: x\nnav: [{Begin: README.md}]\nvalidation: {links: {not_found: warn, anchors: warn, unrecognized_links: warn}}\n"


@unittest.skipUnless(PYTHON.exists(), "MkDocs is not here: tools/bootstrap --docs installs it")
class Site(unittest.TestCase):
    def build(self, root):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        done = subprocess.run([PYTHON, "-B", ROOT / "tools/docs_site.py", "--root", root, "--out", folder / "site"],
                              capture_output=True, text=True, check=False)
        return done, folder / "site"

    def small(self, page):
        root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (root / "mkdocs.yml").write_text(CONFIGURATION)
        (root / "README.md").write_text(page)
        (root / "pages").mkdir()
        (root / "pages/other.md").write_text("# Other\n\n## A heading\n")
        (root / "code.py").write_text("pass\n")
        return root

    def test_the_repositorys_pages_pass_and_can_be_searched(self):
        done, site = self.build(ROOT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for page in ("index.html", "docs/first_day/index.html", "search/search_index.json"):
            self.assertTrue((site / page).stat().st_size, page)

    def test_links_to_files_and_headings_hold(self):
        done, site = self.build(self.small("[a](pages/other.md#a-heading) and [b](code.py)\n"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue((site / "code.py").exists())

    def test_a_link_to_nothing_fails(self):
        for link in ("pages/none.md", "none.py", "pages/other.md#no-heading"):
            with self.subTest(link):
                done, _ = self.build(self.small(f"[a]({link})\n"))
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(link.split("#")[0], done.stdout + done.stderr)


class Layout(unittest.TestCase):
    def test_pages_take_the_files_that_they_link_along(self):
        with tempfile.TemporaryDirectory() as name:
            root, out = pathlib.Path(name) / "root", pathlib.Path(name) / "out"
            (root / "pages").mkdir(parents=True)
            (root / "pages/a.md").write_text("[x](../src/x.h) [y](https://example.com/y.h)\n```\n[z](../src/z.h)\n```\n")
            (root / "src").mkdir()
            for file in ("x.h", "z.h"):
                (root / "src" / file).touch()
            self.assertEqual(docs_site.lay_out(root, out), 1)
            self.assertEqual(sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()), ["pages/a.md", "src/x.h"])
            shutil.rmtree(out)


if __name__ == "__main__":
    unittest.main()
