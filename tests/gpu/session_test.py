#!/usr/bin/env python3
"""scripts/gpu-session, rehearsed on the CPU with the programs of a build: do its stages still fit the program?

    session_test.py SOURCES BUILD
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sources, build = (Path(one).resolve() for one in sys.argv[1:])


def filters():
    told = subprocess.run([sources / "scripts/gpu/filters.py", sources, "experts"], check=True, capture_output=True)
    return json.loads(told.stdout)


def make_pack(folder):
    """Creates what scripts/gpu-pack creates, with links instead of copies, one test program and built-in stories."""
    pack = folder / "pack"
    stories = pack / "shared/data/tinystories"
    for part in (pack / "bin", stories):
        part.mkdir(parents=True)
    for program in ("some", "test_experts"):
        (pack / "bin" / program).symlink_to(build / program)
    (pack / "main").symlink_to(sources)
    (pack / "about.json").write_text(json.dumps({"commit": "none", "source": str(sources), "tests": filters()}))
    for name, seed in (("train", "0"), ("valid", "1")):
        subprocess.run([build / "some", "data", "stories", "--count", "300", "--seed", seed, "-o",
                        stories / f"{name}.txt"], check=True, capture_output=True)


def session(folder, *words, code=0):
    environment = {**os.environ, "SOME_GPU_PACK": str(folder), "OUT": str(folder / "out")}
    done = subprocess.run([sources / "scripts/gpu-session", "--rehearse", *words], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    assert done.returncode == code, f"exit {done.returncode}"
    told = folder / "out/seeds.json"
    return done.stdout.split("=== summary\n")[1], json.loads(told.read_text()) if told.exists() else None


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    make_pack(folder)
    own = folder / "list.txt"  # what is left to run changes, and must not change this
    own.write_text("# a list of its own\nv6-1  v6  1\nv6-2  v6  2\na4-1  a4  1\n")
    table, runs = session(folder, "tests", "seeds", "--list", own, "--runs", "v6")
    assert "test_experts: " in table and " 0 failed" in table and "v6-1 " in table and "v6-2 " in table
    assert [run["name"] for run in runs] == ["v6-1", "v6-2"]
    assert all(run["finished"] and len(run["epochs"]) == 2 for run in runs)
    # The longest runs start first, or the shortest on request. A truncated run of either kind would be last.
    mixed = folder / "mixed.txt"
    mixed.write_text("long  v6  3\nshort  v6  3  train.max_steps=3\n")
    for word, order in (([], ["long", "short"]), (["--short-first"], ["short", "long"])):
        shutil.rmtree(folder / "rehearsal/long", ignore_errors=True)
        shutil.rmtree(folder / "rehearsal/short", ignore_errors=True)
        session(folder, "seeds", "--list", mixed, "--workers", "1", *word)
        done = re.findall(r"^  (long|short): done", (folder / "out/session.log").read_text(), re.M)
        assert done == order, (word, done)
    # Finished runs are recognized although their weights were removed, and are not trained again.
    again, same = session(folder, "seeds", "--list", own, "--runs", "v6")
    assert same == runs and "v6-1 " in again and "v6-2 " in again

    # A run with its own text, and weights that are kept.
    other = folder / "other.txt"
    shutil.copy(folder / "pack/shared/data/tinystories/valid.txt", other)
    own.write_text(f"other  v6  0  data.train={other} data.valid={other}\nstories  v6  0\n")
    table, runs = session(folder, "seeds", "--list", own, "--keep", "othr", code=1)
    assert "--keep othr: no such run or recipe" in table and runs is None, "nothing is trained whose weights would go"
    session(folder, "seeds", "--list", own, "--keep", "other")
    for run, text in (("other", other), ("stories", folder / "pack/shared/data/tinystories/train.txt")):
        settings = (folder / "rehearsal" / run / "v6/config.toml").read_text()
        assert f'train = "{text}"' in settings, settings
        assert (folder / "rehearsal" / run / "v6/checkpoints").exists() == (run == "other")

# The remaining runs have recipes in the lab's index.
known = (sources / "recipes/index.toml").read_text()
for line in (sources / "scripts/gpu-seeds.txt").read_text().splitlines():
    if line.strip() and not line.startswith("#"):
        run, recipe, seed, *settings = line.split()
        assert (sources / "recipes" / f"{recipe}.toml").exists() and f'"{recipe}"' in known, line
        assert seed.isdigit() and all("=" in one for one in settings), line
