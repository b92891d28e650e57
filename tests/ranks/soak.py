#!/usr/bin/env python3
"""Training on several ranks that are killed, stopped and told to end at random moments, for as long as one likes.

usage: tests/ranks/soak.py --program build/some [--minutes 10] [--seed 1] [--ranks 1,2,4,8] [--mpirun mpirun]

Each round trains a small recipe. Again and again something happens to it at a random moment, from its start on: one
rank or all of them are killed, told to end or stopped, or mpirun is; then it goes on with another number of ranks.
In the end model, optimizer, metrics and marks must be those of a run of one rank that
nothing happened to. Besides: after whatever happens all processes end within a minute, and say at most one line.

The numbers of ranks and the acts are a function of --seed; the moments are too, but a machine is never as busy twice.
"""
import argparse
import collections
import os
import random
import re
import signal
import sys
import tempfile
import time

import run as ranks_test
from run import Failure, Ranks, VARIANTS, lives

LONG = ["train.epochs=80", "train.checkpoint_every=17"]
# Enough different tensors that are summed and saved.
RECIPES = {"rules": VARIANTS["rules"] + LONG,
           "paced": [one for one in VARIANTS["paced"] if "accumulate" not in one] + LONG,
           "early": ["model.d_model=128", "train.epochs=10", "train.checkpoint_every=5", "train.batch=2"]}
PATIENCE = 8


class Started:
    """The processes of one start: mpirun with its ranks, or one process without it."""

    def __init__(self, ranks, count, by_mpi, words):
        self.ranks, self.count, self.by_mpi = ranks, count, by_mpi
        more = dict(SOME_RANK_PATIENCE=str(PATIENCE))
        start = [ranks.mpirun, "-n", str(count)] if by_mpi else []
        self.process = ranks.begin([*start, ranks.program, *words], **more)
        self.known = set()

    def look(self):
        """Returns the process ids of the current ranks, by rank."""
        if not self.by_mpi:
            found = {0: self.process.pid} if self.running() else {}
        else:
            found = {}
            children = ranks_test.children_of(self.process.pid)
            for pid in children:
                try:
                    with open(f"/proc/{pid}/environ", "rb") as file:
                        rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", file.read())
                    if rank and os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(self.ranks.program):
                        found[int(rank.group(1))] = pid
                except OSError:
                    continue
        self.known.update(found.values())
        return found

    def running(self):
        return self.process.poll() is None

    def end(self, seconds, what):
        """Returns the output and the exit code."""
        end = time.time() + seconds
        while time.time() < end and (self.running() or any(lives(pid) for pid in self.known)):
            self.look()
            time.sleep(0.05)
        left = [pid for pid in self.known if lives(pid)]
        late = self.running() or left
        if self.running():
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in left:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        said = self.process.communicate()[0]
        if late:
            raise Failure(f"{what}: {len(left)} ranks did not end within {seconds} s:\n{said}")
        return said, self.process.returncode


def send(pids, act):
    for pid in pids:
        try:
            os.kill(pid, act)
        except ProcessLookupError:
            pass


# Possible events and their frequency.
ACTS = {"kill one": 4, "kill all": 2, "kill mpirun": 2, "end one": 3, "end all": 1, "end mpirun": 2, "interrupt one": 2,
        "stop one": 2, "pause one": 1, "pause all": 1}


def happen(started, act, chance):
    """Applies the event to the current ranks; returns a description, or nothing."""
    there = started.look()
    if not there:
        return None
    which = chance.choice(sorted(there))
    one, everyone = [there[which]], list(there.values())
    whom = f"rank {which} of {started.count}" if act.endswith("one") else f"all {started.count}"
    if act == "kill one":
        send(one, signal.SIGKILL)
    elif act == "kill all":
        send(everyone, signal.SIGKILL)
    elif act == "end one":
        send(one, signal.SIGTERM)
    elif act == "end all":
        send(everyone, signal.SIGTERM)
    elif act == "interrupt one":
        send(one, signal.SIGINT)
    elif act in ("kill mpirun", "end mpirun"):
        send([started.process.pid], signal.SIGKILL if act == "kill mpirun" else signal.SIGTERM)
        whom = f"mpirun of {started.count}"
    elif act == "stop one":
        send(one, signal.SIGSTOP)
    else:
        some = one if act == "pause one" else everyone
        seconds = chance.uniform(0.2, 0.5 * PATIENCE)
        send(some, signal.SIGSTOP)
        time.sleep(seconds)
        send(some, signal.SIGCONT)
        whom += f" for {seconds:.1f} s"
    return f"{act}: {whom}"


def round_of(ranks, options, chance, number, tally):
    name = chance.choice(sorted(RECIPES))
    whole, folder = f"whole-{name}", f"round-{number}"
    if not os.path.exists(os.path.join(ranks.folder, whole)):
        ranks.run([ranks.program, "train", *ranks.recipe, *RECIPES[name], "--out", whole])
    acts, wanted, finished = [], chance.randint(2, 6), False
    while not finished:
        count = chance.choice(options.ranks)
        by_mpi = count > 1 or chance.random() < 0.7
        begun = os.path.exists(os.path.join(ranks.folder, folder, "config.toml"))
        words = ["train", "--resume", folder] if begun else \
            ["train", *ranks.recipe, *RECIPES[name], "--out", folder]
        begin = time.time()
        started = Started(ranks, count, by_mpi, words)
        what = f"{name} on {count} {'by mpirun' if by_mpi else 'without mpirun'}"
        done, act = None, "pause"
        while len(acts) < wanted and started.running() and act.startswith("pause"):  # after which it goes on
            possible = [one for one in ACTS if (by_mpi or "mpirun" not in one) and (count > 1 or one != "stop one")]
            act = chance.choices(possible, [ACTS[one] for one in possible])[0]
            # While it starts, or later.
            if by_mpi and chance.random() < 0.3:
                time.sleep(chance.uniform(0, 2))
            else:
                ranks_test.wait_for_steps(ranks, started.running, folder, begin)
                time.sleep(chance.uniform(0, 0.8))
            done = happen(started, act, chance)
            if done:
                acts.append(f"{what}, {done}")
                tally[act] += 1
        if act.startswith("pause"):
            done = None  # nothing that should end it
        said, code = started.end(60 + PATIENCE if done else 300, acts[-1] if acts else what)
        told = [line for line in said.splitlines() if line.startswith("some: ")]
        finished = code == 0 and not re.search("stopped at step|stopped while", said)
        if len(told) > 1:
            raise Failure(f"{acts[-1] if acts else what}: more than one line:\n{said}")
        if not finished and not done:
            raise Failure(f"{what}, after {'; '.join(acts)}: it failed by itself:\n{said}")
    ranks.expect_same(whole, folder)
    print(f"round {number}: the same bytes after {'; '.join(acts) or 'nothing'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", default="1,2,4,8")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.ranks = [int(number) for number in options.ranks.split(",")]
    chance, tally, number = random.Random(options.seed), collections.Counter(), 0
    end = time.time() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="some-soak-") as folder:
        while time.time() < end:
            number += 1
            try:
                round_of(Ranks(options, folder), options, chance, number, tally)
            except Failure as failure:
                print(f"round {number} of seed {options.seed}: {failure}")
                return 1
    print(f"{number} rounds, {sum(tally.values())} acts ({', '.join(f'{n} {name}' for name, n in tally.items())}): the "
          "same bytes every time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
