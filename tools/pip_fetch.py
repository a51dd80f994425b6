"""Fetches pinned packages with pip, checked against their hashes, and never runs code of theirs.

pip is used because it knows this machine's index, proxy and certificates. Nothing is installed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

# pip asks a source package's build backend for its metadata, which would run its setup.py: ours
# answers in its place. Found first through PYTHONPATH, in the interpreter that pip starts.
METADATA_BACKEND = """\
import os

class Backend:
    def get_requires_for_build_wheel(self, config_settings=None):
        return []

    def prepare_metadata_for_build_wheel(self, metadata_directory, config_settings=None):
        name, version = {name!r}, {version!r}
        folder = f"{{name}}-{{version}}.dist-info"
        os.makedirs(os.path.join(metadata_directory, folder))
        with open(os.path.join(metadata_directory, folder, "METADATA"), "w") as metadata:
            metadata.write(f"Metadata-Version: 2.1\\nName: {{name}}\\nVersion: {{version}}\\n")
        return folder

__legacy__ = Backend()
"""

NETWORK = (
    "ConnectionError",
    "NewConnectionError",
    "Temporary failure",
    "Read timed out",
    "ReadTimeout",
    "SSLError",
    "ProxyError",
    "No matching distribution",
    "Name or service not known",
    "IncompleteRead",
    "HTTP error",
    "Connection broken",
    "Max retries",
    "ConnectTimeout",
)


def fail(message):
    sys.exit(f"error: {message}")


def fail_for_disk(folder):
    fail(
        f"the disk that holds {folder} is full; free some space and run the same command again"
    )


def last_error(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(
        (line for line in lines if line.startswith("ERROR:")),
        lines[-1] if lines else "no message",
    )


def explain(pip_output, names, folder):
    """Ends with one line that says what went wrong and what to do."""
    if "No space left on device" in pip_output:
        fail_for_disk(folder)
    if "No module named pip" in pip_output:
        fail(
            "python3 has no pip: run tools/setup, which installs the Debian package python3-pip"
        )
    if "DO NOT MATCH THE HASHES" in pip_output:
        fail(
            f"a file fetched for {names} is not the one that was pinned (its hash differs): clear pip's cache "
            "and any mirror in between, and run the same command again"
        )
    if any(sign in pip_output for sign in NETWORK):
        fail(
            f"could not fetch {names} from the package index: {last_error(pip_output)[:200]} (check the network "
            "and pip's settings, `python3 -m pip config list`, then run the same command again)"
        )
    fail(f"pip could not fetch {names}: {last_error(pip_output)[:300]}")


def run_pip(pins, folder, arguments, environment):
    """Downloads `pins`, a list of (name, version, sha256), into `folder`."""
    names = ", ".join(f"{name} {version}" for name, version, _ in pins)
    requirements = folder / "requirements.txt"
    requirements.write_text(
        "".join(
            f"{name}=={version} --hash=sha256:{sha256}\n"
            for name, version, sha256 in pins
        )
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-cache-dir",
        "--progress-bar",
        "off",
        "--disable-pip-version-check",
        "--require-hashes",
        "-r",
        str(requirements),
        "-d",
        str(folder),
        *arguments,
    ]
    # pip's own temporary files go to the same folder: /tmp may be small, and they vanish with it.
    environment = {**os.environ, "TMPDIR": str(folder), **environment}
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    if result.returncode != 0:
        explain(result.stdout, names, folder)


def fetch_wheels(pins, folder, python_version, platform):
    """Fetches wheels for one Python and platform, whatever Python runs this; returns their paths."""
    # An index may name wheels for another Python: this one's headers and libraries depend on none.
    run_pip(
        pins,
        folder,
        [
            "--only-binary=:all:",
            "--implementation=cp",
            f"--python-version={python_version}",
            *(f"--platform={tag}" for tag in platform),
        ],
        {},
    )
    return sorted(folder.glob("*.whl"))


def fetch_source(pin, folder):
    """Fetches a source package without running its setup.py; returns the path of its archive."""
    name, version, _ = pin
    with tempfile.TemporaryDirectory(dir=folder) as backend:
        module = pathlib.Path(backend, "setuptools")
        module.mkdir()
        (module / "__init__.py").write_text("")
        (module / "build_meta.py").write_text(
            METADATA_BACKEND.format(name=name, version=version)
        )
        run_pip(
            [pin],
            folder,
            [f"--no-binary={name}", "--no-build-isolation", "--use-pep517"],
            {"PYTHONPATH": backend},
        )
    return next(folder.glob(f"{name}-{version}.tar.gz"))
