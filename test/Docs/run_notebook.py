"""Runs a notebook in an empty folder.

run_notebook.py NOTEBOOK.ipynb
"""

import sys
import tempfile

import nbclient
import nbformat


def main():
    notebook = nbformat.read(sys.argv[1], as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": folder}}
        ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    pages = sum("text/html" in output.get("data", {}) for cell in cells for output in cell.outputs)
    if not pages:
        raise SystemExit("no cell shows a report")
    print(f"{len(cells)} cells ran")


if __name__ == "__main__":
    main()
