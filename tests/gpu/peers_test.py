"""The PyTorch versions in bench/ run, and train as many parameters as the recipes they are compared with.
usage: peers_test.py SOURCES PROGRAM"""
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is not installed (Debian: python3-torch)")
    sys.exit(77)

sources, program = Path(sys.argv[1]), sys.argv[2]
SMALL = ["model.d_model=32", "model.layers=2", "model.heads=2", "model.seq_len=16", "data.train=builtin:nature",
         "data.valid="]


def lines(script, *words):
    done = subprocess.run([sys.executable, sources / "bench" / script, *words, "--rehearse"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


peers = lines("peer_train.py", "a1", "a4", "b2", "dense-match", "dense-conv", "features", "mod-shift-gentle", "mod-conv",
              "moe-top2")
assert len(peers) == 9, peers
for peer in peers:
    hidden = "model.dense_mult=1.5" if peer["peer"].startswith("dense") else "some.d_ffn=48"
    info = subprocess.run([program, "info", peer["peer"], *SMALL, hidden, "--json"], capture_output=True, text=True)
    assert info.returncode == 0, info.stdout + info.stderr
    ours = json.loads(info.stdout)["trainable_parameters"]
    assert peer["trained"] == ours, f"{peer['peer']}: PyTorch trains {peer['trained']} parameters, the program {ours}"
    assert 8.5 < peer["loss"] < 9.5, peer  # near log(8192) = 9.01 at first

texts = lines("peer_generate.py", "dense-match", "dense-conv", "mod-shift-gentle")
assert [text["peer"] for text in texts] == ["dense-match", "dense-conv", "mod-shift-gentle"], texts
