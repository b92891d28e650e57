"""Runs the cells of a notebook one after another in a fresh folder, as a kernel would; exit code 1 where one raises."""

import json
import os
import sys
import tempfile
import traceback

try:
    import numpy  # noqa: F401
except ImportError:
    print("skipped: this Python has no NumPy (Debian's python3-numpy)")
    sys.exit(77)

with open(sys.argv[1], encoding="utf-8") as file:
    notebook = json.load(file)
assert notebook["nbformat"] == 4 and notebook["metadata"]["kernelspec"]["language"] == "python"
cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
names = {"__name__": "__main__"}
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for number, cell in enumerate(cells, 1):
        print(f"[{number}]", flush=True)
        try:
            exec(compile(cell, f"cell {number}", "exec"), names)
        except Exception:
            traceback.print_exc()
            print(cell)
            sys.exit(1)
    os.chdir("/")
sys.exit(0 if cells else 1)
