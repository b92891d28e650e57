#!/usr/bin/env python3
"""scripts/manual-texts, on a package made here in place of Debian's.

    manual_texts_test.py SOURCES
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sources = Path(sys.argv[1]).resolve()
if shutil.which("dpkg-deb") is None:
    print("skipped: dpkg-deb is needed to make a package")
    sys.exit(77)


def sentence(word):
    return f"The {word} is told of in a sentence that is long enough to be taken for prose by whoever reads it."


def words(folder, *more):
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run([sources / "scripts/manual-texts", folder / "out", *more], env=environment, text=True,
                          capture_output=True)


def texts(folder, part):
    return [json.loads(line) for line in (folder / f"out/manuals-{part}.jsonl").read_text().splitlines()]


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    pages = folder / "package/usr/share/doc/manual"
    (folder / "package/DEBIAN").mkdir(parents=True)
    pages.mkdir(parents=True)
    (folder / "package/DEBIAN/control").write_text(
        "Package: manual\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: test\n")
    (pages / "first.html").write_text(f"""<html><body><div class="navigation"><p>{sentence("menu")}</p></div>
<h1>Apples</h1><p>{sentence("apple")}<p>{sentence("pear")} It costs 2 &lt; 3.
<table><tr><td>{sentence("cell")}<tr><td>{sentence("other cell")}</table>
<pre>{sentence("program")}</pre><p>Short.</p>
<h2>Long</h2>{"".join(f"<p>{sentence(f'number {i}')}</p>" for i in range(40))}
</body></html>""")
    # Every page has the same last paragraph, which is kept once.
    for number in range(20):
        told = "".join(f"<p>{sentence(what)}</p>" for what in (f"page {number}", f"leaf {number}", "foot"))
        (pages / f"more-{number}.html").write_text(f"<h1>Page</h1>{told}")
    subprocess.run(["dpkg-deb", "--build", folder / "package", folder / "manual.deb"], check=True, capture_output=True)
    fake = folder / "apt-get"
    fake.write_text(f'#!/bin/sh\n[ "$1 $2" = "download manual" ] || {{ echo "E: no package $2" >&2; exit 100; }}\n'
                    f'cp {folder}/manual.deb manual_1_all.deb\n')
    fake.chmod(0o755)

    done = words(folder, "--packages", "manual", "--valid", "5", "--least", "150", "--most", "600")
    assert done.returncode == 0, done.stderr
    valid, train = texts(folder, "valid"), texts(folder, "train")
    every = [one["text"] for one in valid + train]
    everything = "\n".join(every)
    for left_out in ("menu", "cell", "program", "Short.", "Apples"):
        assert left_out not in everything, left_out
    assert sum(f"{sentence('apple')}\n\n{sentence('pear')} It costs 2 < 3." == text for text in every) == 1, every
    assert everything.count(sentence("foot")) == 1
    assert max(map(len, every)) <= 600
    # The long section is split into several documents in order, all of them in the same set.
    parts = [[text for text in map(lambda one: one["text"], side) if "number" in text] for side in (valid, train)]
    assert [bool(part) for part in parts].count(True) == 1
    assert "\n\n".join(max(parts, key=len)) == "\n\n".join(sentence(f"number {i}") for i in range(40))
    assert len(valid) >= 5 and len(every) == len(set(every))
    assert all(one["source"].startswith("manual/") for one in train)
    again = words(folder, "--packages", "manual", "--valid", "5", "--least", "150", "--most", "600")
    assert again.returncode == 0 and (texts(folder, "valid"), texts(folder, "train")) == (valid, train)

    for more, what in ((["--packages", "nowhere"], "E: no package nowhere"),
                       (["--packages", "manual", "--least", "150"], "--valid")):
        bad = words(folder, *more)
        assert bad.returncode == 1 and what in bad.stderr and "Traceback" not in bad.stderr, bad.stderr
    for word in ("0", "-1", "many"):
        bad = words(folder, "--valid", word)
        assert bad.returncode == 2 and f"--valid: {word}:" in bad.stderr, bad.stderr
    (folder / "manual.deb").write_text("no package")
    bad = words(folder, "--packages", "manual")
    assert bad.returncode == 1 and "manual-texts: manual" in bad.stderr, bad.stderr
    assert "Traceback" not in bad.stderr, bad.stderr
