"""What koila stores in a file besides the program."""

import json
import zipfile


def read_report(archive):
    """The report that koila-opt put into `archive`, a .pt file."""
    with zipfile.ZipFile(archive) as members:
        name = next(name for name in members.namelist() if name.endswith("extra/koila/report.json"))
        return json.loads(members.read(name))
