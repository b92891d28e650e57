"""Reads metrics.jsonl of a run (docs/metrics.schema.json) line by line, for forwarding to other programs."""

import argparse
import json
import os
import time
import tomllib


def options(description, group):
    """Parses the command line of a forwarder: the run, --follow, and --GROUP, the name of the run's group there."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run folder")
    parser.add_argument(f"--{group}", default="some", dest="group", help="its name there (default: some)")
    parser.add_argument("--follow", action="store_true", help="wait for what comes, until the run is finished")
    given = parser.parse_args()
    given.run = os.path.abspath(given.run)
    return given


def lines(folder, follow=False, seconds=5.0):
    """Yields the existing lines; with follow also new ones, until the run is finished (according to timing.jsonl)."""
    path, rest, read = os.path.join(folder, "metrics.jsonl"), b"", 0
    while True:
        finished = is_finished(folder)  # asked first: what is written after it is read in this round
        if os.path.exists(path):
            if os.path.getsize(path) < read:  # the run went back to a checkpoint
                rest, read = b"", 0
            with open(path, "rb") as file:
                file.seek(read)
                new = file.read()
            read += len(new)
            *whole, rest = (rest + new).split(b"\n")
            for line in whole:
                yield json.loads(line)
        if not follow or finished:
            return
        time.sleep(seconds)


def is_finished(folder):
    path = os.path.join(folder, "timing.jsonl")
    if not os.path.exists(path):
        return False
    with open(path, encoding="utf-8") as file:
        sittings = file.read().splitlines()
    return bool(sittings) and json.loads(sittings[-1]).get("finished") is True


def numbers(line):
    """Returns the numbers of a line by flat names: "train/loss", "eval/layer1/validation/gini"."""
    out = {}

    def walk(prefix, value):
        if isinstance(value, dict):
            for key, item in value.items():
                walk(f"{prefix}/{key}", item)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            out[prefix] = value

    for key, value in line.items():
        if key in ("kind", "step", "layers", "texts", "stage_title"):
            continue
        walk(f"{line['kind']}/{key}", value)
    for number, layer in enumerate(line.get("layers", [])):
        walk(f"{line['kind']}/layer{layer.get('layer', number)}", {k: v for k, v in layer.items() if k != "layer"})
    for text in line.get("texts", []):
        walk(f"{line['kind']}/text{text['stage']}", {k: v for k, v in text.items() if k != "stage"})
    return out


def settings(folder):
    """Returns all settings of the run by full name."""
    with open(os.path.join(folder, "config.toml"), "rb") as file:
        tables = tomllib.load(file)
    out = {}
    for name, value in tables.items():
        if isinstance(value, dict):
            out.update({f"{name}.{key}": item for key, item in value.items()})
        else:
            out[name] = value
    return out
