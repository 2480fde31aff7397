"""Libraries in the version that a set of measurements was made with, beside the one of
build/venv: installed on demand below build/libraries, without what they depend on."""

import functools
import importlib.metadata
import pathlib
import subprocess
import sys

from koila._errors import KoilaError

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "build" / "libraries"


@functools.cache
def use(*requirements):
    """Puts them before all others; the first one names the folder. KoilaError where pip
    does not get them, or another version has been imported already."""
    folder = FOLDER / requirements[0].replace("==", "-")
    # Written last: an installation that was cut off is made again.
    marker = folder / "complete"
    if not marker.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        done = subprocess.run(
            [*command, "--disable-pip-version-check", "--target", folder, *requirements],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise KoilaError(f"pip cannot install {', '.join(requirements)}: {last}")
        marker.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    for requirement in requirements:
        name = requirement.partition("==")[0]
        if name in sys.modules and not _is_below(sys.modules[name], folder):
            raise KoilaError(
                f"{name} {importlib.metadata.version(name)} has been imported before {requirement}"
            )
    sys.path.insert(0, str(folder))
    return folder


def _is_below(module, folder):
    return folder in pathlib.Path(module.__file__).parents
