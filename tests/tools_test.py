"""Tests of the scripts in tools/ that prepare libtorch and the text, without a network."""

import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOOLS))


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(TOOLS / name))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(name, loader)
    )
    loader.exec_module(module)
    return module


import pip_fetch  # noqa: E402

fetch_torch = load("fetch_torch")
prepare_text = load("prepare_text")


class ToolsTest(unittest.TestCase):
    def expect_error(self, message, function, *arguments):
        with self.assertRaises(SystemExit) as caught:
            function(*arguments)
        self.assertEqual(str(caught.exception), message)


class PipFetch(ToolsTest):
    def expect_explained(self, pip_output, message):
        self.expect_error(message, pip_fetch.explain, pip_output, "torch 2", "/deps")

    def test_a_full_disk_names_the_folder(self):
        self.expect_explained(
            "ERROR: Could not install: [Errno 28] No space left on device\n",
            "error: the disk that holds /deps is full; free some space and run the same command again",
        )

    def test_no_network_names_the_packages_and_pips_settings(self):
        self.expect_explained(
            "WARNING: Retrying ... NewConnectionError\nERROR: No matching distribution found\n",
            "error: could not fetch torch 2 from the package index: ERROR: No matching distribution "
            "found (check the network and pip's settings, `python3 -m pip config list`, then run "
            "the same command again)",
        )

    def test_another_hash_is_named(self):
        self.expect_explained(
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n",
            "error: a file fetched for torch 2 is not the one that was pinned (its hash differs): "
            "clear pip's cache and any mirror in between, and run the same command again",
        )

    def test_a_missing_pip_says_how_to_get_it(self):
        self.expect_explained(
            "/usr/bin/python3: No module named pip\n",
            "error: python3 has no pip: run tools/setup, which installs the Debian package "
            "python3-pip",
        )

    def test_anything_else_shows_pips_last_error(self):
        self.expect_explained(
            "ERROR: bad option\nsee --help\n",
            "error: pip could not fetch torch 2: ERROR: bad option",
        )


class FetchTorch(ToolsTest):
    def test_a_version_that_is_not_pinned_is_refused(self):
        result = subprocess.run(
            [sys.executable, TOOLS / "fetch_torch", "1.0"],
            check=False,
            capture_output=True,
            text=True,
        )
        self.assertEqual(result.returncode, 1)
        self.assertEqual(
            result.stderr,
            "error: torch 1.0 is not pinned in tools/fetch_torch, which knows 2.15.0, 2.11.0\n",
        )

    def test_the_default_version_is_pinned(self):
        version = (TOOLS.parent / "cmake" / "torch_version").read_text().strip()
        self.assertIn(version, fetch_torch.PINS)

    def test_only_what_a_cpu_build_needs_is_unpacked(self):
        kept = [
            "torch/include/ATen/ATen.h",
            "torch/lib/libc10.so",
            "torch/lib/libgomp.so.1",
            "torch/lib/libtorch_cpu.so",
            "torch-2.15.0.dist-info/licenses/LICENSE",
            "nvidia/cu13/lib/libcudart.so.13",
            "nvidia/cu13/lib/libcupti.so.13",
        ]
        left_out = [
            "torch/__init__.py",
            "torch/lib/libtorch_cuda.so",
            "torch/lib/libtorch_python.so",
            "nvidia/cu13/lib/libnvperf_host.so",
            "nvidia/cu13/include/cupti.h",
        ]
        with tempfile.TemporaryDirectory() as folder:
            wheel, target = pathlib.Path(folder, "a.whl"), pathlib.Path(folder, "out")
            with zipfile.ZipFile(wheel, "w") as archive:
                for name in kept + left_out:
                    archive.writestr(name, "content")
            fetch_torch.unpack([wheel], target)
            found = [
                str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()
            ]
            self.assertEqual(sorted(found), sorted(kept))
            self.assertFalse(wheel.exists())


class PrepareText(ToolsTest):
    def works(self, **changed):
        names = [f"work_{number}" for number in range(prepare_text.NUM_WORKS - 2)]
        works = {name: f"{name} says something of its own\n" for name in names}
        works |= {
            name: " ".join(f"{name}{i}" for i in "abcdefghijklmnopqrstuvwxyz")
            for name in prepare_text.HELD_OUT
        }
        return works | changed

    def test_works_that_share_nothing_pass(self):
        prepare_text.check_works(self.works())

    def test_a_held_out_passage_in_the_text_to_train_on_is_refused(self):
        passage = " ".join("abcdefghijklmnopqrst")
        works = self.works(
            othello=f"before {passage}", work_7=f"{passage.upper()} after"
        )
        self.expect_error(
            f"error: the held-out work othello shares the passage '{passage}' with work_7",
            prepare_text.check_works,
            works,
        )

    def test_a_missing_work_is_refused(self):
        works = self.works()
        del works["work_3"]
        self.expect_error(
            f"error: the text package holds {prepare_text.NUM_WORKS - 1} works, expected "
            f"{prepare_text.NUM_WORKS}",
            prepare_text.check_works,
            works,
        )

    def test_licence_text_that_is_left_is_refused(self):
        works = self.works(work_5="This eBook is from Project Gutenberg\n")
        self.expect_error(
            "error: licence text is left in work_5", prepare_text.check_works, works
        )

    def test_licence_and_carriage_returns_are_removed(self):
        text = (
            "Licence\r\n*** START OF THIS EBOOK HAMLET ***\r\n\r\nHAMLET\r\n\r\nWho's there?\r\n\r\n"
            "*** END OF THIS EBOOK ***\r\nMore licence\r\n"
        )
        self.assertEqual(prepare_text.clean(text), "HAMLET\n\nWho's there?\n")

    def test_other_editions_of_a_work_are_no_works(self):
        self.assertTrue(
            prepare_text.WORK.fullmatch("x-1/shksprdata/texts/henry_iv_part_1_gut.txt")
        )
        self.assertFalse(
            prepare_text.WORK.fullmatch("x-1/shksprdata/texts/hamlet_gut_f.txt")
        )
        self.assertFalse(
            prepare_text.WORK.fullmatch("x-1/miltondata/texts/comus_gut.txt")
        )

    def test_a_second_run_does_nothing(self):
        if not (prepare_text.TEXT / "stamp").is_file():
            self.skipTest("the text is not prepared")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            prepare_text.main()
        self.assertEqual(output.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
