#!/usr/bin/env python3
"""The notebooks of docs/notebooks: their cells run in order, and the model learns."""

import json
import pathlib
import unittest

NOTEBOOKS = pathlib.Path(__file__).resolve().parents[2] / "docs/notebooks"


def run(name):
    """The variables after all code cells, as if a person had run them from the top."""
    notebook = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))
    variables = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), variables)
    return variables


class NotebooksTest(unittest.TestCase):

    def test_pytorch(self):
        variables = run("pytorch.ipynb")
        self.assertTrue(variables["job"].closed)
        self.assertGreater(variables["accuracy"], 0.9)

    def test_notebooks_are_stored_without_outputs(self):
        for path in NOTEBOOKS.glob("*.ipynb"):
            for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
                if cell["cell_type"] == "code":
                    self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None), path.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
