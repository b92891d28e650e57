#!/usr/bin/env python3
"""A board that edits runs while its file calls fail, while it is killed, and while another board edits the same runs.

usage: board.py --program SOME --shim SHIM.so [--rounds N] [--seed N]

Each round copies a folder of runs and opens a board on it. Clients change labels, delete runs and restore them, while
one of the board's file calls goes wrong (shim.c: it fails, the disk is full from then on, or the process is killed
there), or while a second board makes the same changes. Afterwards a board without faults must show every run exactly
once, as a run or in the trash; labels are those of one accepted or interrupted request, whole; and once everything is
restored, the folders hold the same bytes as at the beginning, apart from labels.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import TIMES, TRAIN, Fault, Runner, contents, make_folder  # noqa: E402

RUNS = ("one", "two", "three")
KINDS = ("kill", "torn", "full", "gone", "5", "13", "28")  # the last three: EIO, EACCES, ENOSPC
TIME_LIMIT = 30


class Board:
    """A board in `folder`, with an optional fault."""

    def __init__(self, options, folder, fault=None):
        environment = {"ONEDNN_MAX_CPU_ISA": "SSE41", **os.environ}
        if fault:
            environment.update(LD_PRELOAD=options.shim, FAULT_AT=str(fault[0]), FAULT_KIND=fault[1])
        self.process = subprocess.Popen([options.program, "board", "runs", "--json", "--port", "0", "--device", "cpu"],
                                        cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.address = json.loads(line).get("address") if line.startswith("{") else None
        self.base, _, key = (self.address or "").partition("/#key=")
        self.key = key.partition("&")[0]

    def ask(self, path, body=None):
        """The answer as JSON; a refusal is {"error": ...}; None if the board is gone."""
        request = urllib.request.Request(self.base + path, data=None if body is None else json.dumps(body).encode(),
                                         headers={"X-Board-Key": self.key, "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=TIME_LIMIT) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            return {"error": refusal.read().decode(errors="replace"), "status": refusal.code}
        except (OSError, ValueError) as reason:
            if self.process.poll() is None and isinstance(reason, TimeoutError):
                raise Fault(f"{path}: no answer within {TIME_LIMIT} seconds") from None
            return None

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            said = self.process.communicate(timeout=TIME_LIMIT)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Fault("the board did not end") from None
        return self.process.returncode, said


def edit(board, dice, count, sent):
    """Makes random changes. `sent`: by run, the labels that were ever asked for."""
    for _ in range(count):
        answer = board.ask("/api/runs")
        if answer is None:
            return
        runs = answer.get("runs", [])
        act = dice.randrange(4)
        if act < 2 and runs:
            run = dice.choice(runs)
            labels = {"name": dice.choice(["", "renamed", "a name " * 20]), "tags": dice.sample(["a", "b", "c d"], 2),
                      "note": "a note\n" * dice.choice([0, 1, 1000])}
            name = os.path.basename(run["folder"])
            sent.setdefault(name, []).append(labels)
            board.ask("/api/labels", {"run": run["id"], **labels})
        elif act == 2 and runs:
            board.ask("/api/delete", {"run": dice.choice(runs)["id"]})
        else:
            trash = (board.ask("/api/trash") or {}).get("runs", [])
            if trash:
                board.ask("/api/restore", {"entry": dice.choice(trash)["entry"]})


def check(options, folder, before, sent):
    board = Board(options, folder)
    if board.address is None:
        raise Fault(f"no board afterwards: {board.close()[1][-300:]}")
    try:
        end = time.time() + TIME_LIMIT  # the first look at the folder takes its time on a busy machine
        while True:
            trash = board.ask("/api/trash")["runs"]
            shown = [os.path.basename(run["folder"]) for run in board.ask("/api/runs")["runs"]]
            places = sorted(shown + [entry["name"] for entry in trash])
            if places == sorted(RUNS) or time.time() > end:
                break
            time.sleep(0.1)
        if places != sorted(RUNS):
            raise Fault(f"the board shows {sorted(shown)} and in the trash {sorted(entry['name'] for entry in trash)}")
        for entry in trash:
            answer = board.ask("/api/restore", {"entry": entry["entry"]})
            if answer is None or "error" in answer:
                raise Fault(f"{entry['name']} cannot be restored: {answer}")
    finally:
        code, said = board.close()
    if code not in (0, 130, 143, -signal.SIGTERM):
        raise Fault(f"the board ended with {code}: {said[-300:]}")
    found = contents(os.path.join(folder, "runs"), TIMES)
    labels = [name for name in found if os.path.basename(name) == "labels.json"]
    for name in labels:
        with open(os.path.join(folder, "runs", name)) as file:
            held = json.load(file)
        held["tags"] = sorted(held["tags"])
        if not any(held == {**one, "tags": sorted(one["tags"])} for one in sent.get(os.path.dirname(name), [])):
            raise Fault(f"{name} holds labels that nobody sent: {held}")
        del found[name]
    # A failed removal of an empty folder of the trash is no loss; files that nobody will remove are.
    found = {name: value for name, value in found.items() if not (name.startswith(".trash") and value == "folder")}
    if found != before:
        missing, more = sorted(before.keys() - found.keys()), sorted(found.keys() - before.keys())
        other = sorted(name for name in before.keys() & found.keys() if before[name] != found[name])
        raise Fault(f"the runs are not what they were: missing {missing}, left over {more}, other contents {other}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.program, options.shim = os.path.abspath(options.program), os.path.abspath(options.shim)
    dice = random.Random(options.seed)
    counts = {}
    with tempfile.TemporaryDirectory(prefix="some-board-") as scratch:
        first = os.path.join(scratch, "first")
        make_folder(first)
        Runner(options.program, options.shim).run_well(first, TRAIN)
        for name in RUNS:
            shutil.copytree(os.path.join(first, "run"), os.path.join(first, "runs", name))
        before = contents(os.path.join(first, "runs"), TIMES)
        for number in range(options.rounds):
            folder = os.path.join(scratch, f"round-{number}")
            shutil.copytree(first, folder)
            seed = dice.randrange(1 << 30)
            fault = None if number % 4 == 3 else (int(1.02 ** dice.randrange(450)), dice.choice(KINDS))
            sent, where = {}, f"round {number} (seed {options.seed}): " + (f"call {fault[0]}, {fault[1]}" if fault else "two boards")
            try:
                boards = [Board(options, folder, fault)] if fault else [Board(options, folder), Board(options, folder)]
                begin = time.time()
                clients = [threading.Thread(target=edit, args=(board, random.Random(seed + i), 12, sent))
                           for i, board in enumerate(boards) if board.address]
                for client in clients:
                    client.start()
                for client in clients:
                    client.join()
                for board in boards:
                    code, said = board.close()
                    counts[code] = counts.get(code, 0) + 1
                    if code not in (0, 1, 2, 130, 143, -9, -signal.SIGTERM):  # the last: before it takes signals
                        raise Fault(f"a board ended with {code} after {time.time() - begin:.1f} s: {said[-300:]}")
                check(options, folder, before, sent)
            except Fault as problem:
                print(f"{where}: {problem}")
                return 1
            shutil.rmtree(folder)
    print(f"{options.rounds} rounds; exit codes of the boards: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
