"""Tests of check_folders.py on small trees that each break one rule."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("check_folders.py")
FOLDERS = "switchyard_folder(base LIBRARIES fmt::fmt)\nswitchyard_folder(moe DEPENDS base\n                  LIBRARIES x)\n"


class CheckFolders(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        self.write("src/CMakeLists.txt", FOLDERS)
        for folder in ("base", "moe"):
            self.write(f"src/{folder}/README.md", "what it is for\n")
        self.write("src/base/error.h", "#include <string>\n")
        self.write(
            "src/moe/router.cpp", '#include "moe/router.h"\n#include "base/error.h"\n'
        )

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def run_check(self):
        result = subprocess.run(
            [sys.executable, SCRIPT, self.root / "src"], capture_output=True, text=True
        )
        return result.returncode, result.stdout.replace(f"{self.root}/", "")

    def expect_refused(self, message):
        code, output = self.run_check()
        self.assertEqual((code, output.strip()), (1, message))

    def test_a_tree_that_keeps_the_rules_passes(self):
        self.assertEqual(
            self.run_check(),
            (0, "2 folders, 2 sources: every include goes downwards\n"),
        )

    def test_an_include_that_is_not_listed_is_refused(self):
        self.write("src/base/error.h", '#include <string>\n#include "moe/router.h"\n')
        self.expect_refused("src/base/error.h:2: base/ may not include moe/")

    def test_an_include_is_found_however_it_is_spaced(self):
        self.write("src/base/error.h", '  #  include  "moe/router.h"\n')
        self.expect_refused("src/base/error.h:1: base/ may not include moe/")

    def test_ours_in_angles_is_refused(self):
        self.write("src/base/error.h", "#include <moe/router.h>\n")
        self.expect_refused(
            'src/base/error.h:1: write "moe/router.h", with quotes: it is ours'
        )

    def test_a_relative_include_is_refused(self):
        self.write("src/base/error.h", '#include "../moe/router.h"\n')
        self.expect_refused(
            'src/base/error.h:1: "../moe/router.h" names no folder of src/; write "folder/file.h"'
        )

    def test_torch_in_quotes_is_refused(self):
        self.write("src/moe/router.cpp", '#include "ATen/ATen.h"\n')
        self.expect_refused(
            "src/moe/router.cpp:1: write <ATen/ATen.h>, with angles: it is torch's"
        )

    def test_the_costliest_header_is_refused_in_sources_and_tests(self):
        self.write("tests/moe/router_test.cpp", "#include <torch/torch.h>\n")
        self.expect_refused(
            "tests/moe/router_test.cpp: <torch/torch.h>: takes 13 s to compile; include what is used, "
            "from ATen/ or torch/csrc/"
        )

    def test_a_costly_header_is_refused_in_a_header_and_allowed_in_a_source(self):
        self.write("src/moe/router.cpp", "#include <ATen/ATen.h>\n")
        self.write(
            "src/moe/router.h",
            "#include <ATen/core/Tensor.h>\n#include <ATen/ATen.h>\n",
        )
        self.expect_refused(
            "src/moe/router.h:2: <ATen/ATen.h>: a header may include <ATen/core/Tensor.h> and <ATen/Parallel.h> only: "
            "include this in the source"
        )

    def test_c10d_is_refused_outside_parallel(self):
        self.write(
            "src/moe/router.cpp", "#include <torch/csrc/distributed/c10d/Store.hpp>\n"
        )
        self.expect_refused(
            "src/moe/router.cpp:1: <torch/csrc/distributed/c10d/Store.hpp>: only src/parallel may include c10d"
        )

    def test_a_dependency_upwards_is_refused(self):
        self.write(
            "src/CMakeLists.txt",
            "switchyard_folder(base DEPENDS moe)\nswitchyard_folder(moe)\n",
        )
        self.write("src/moe/router.cpp", "")
        self.expect_refused(
            "src/CMakeLists.txt: base depends on moe, which no line above it declares"
        )

    def test_a_folder_without_a_line_is_refused(self):
        self.write("src/extra/a.h", "#include <string>\n")
        self.expect_refused("src/extra: the folder has no line in src/CMakeLists.txt")

    def test_a_line_without_a_folder_is_refused(self):
        self.write("src/CMakeLists.txt", FOLDERS + "switchyard_folder(gone)\n")
        self.expect_refused(
            "src/CMakeLists.txt: declares gone, but src/gone is not a folder"
        )

    def test_a_folder_without_a_readme_is_refused(self):
        (self.root / "src/moe/README.md").unlink()
        self.expect_refused(
            "src/moe: has no README.md, which says what the folder is for"
        )


if __name__ == "__main__":
    unittest.main()
