#!/usr/bin/env python3
"""Sends a run's metrics to Weights & Biases: to_wandb.py RUN [--project NAME] [--follow]

Needs the package wandb, and its login. Sent twice, nothing is doubled: the run there has an id of its own, and steps that it has
are passed over."""

import argparse
import hashlib
import os

import run_lines
import wandb

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("run", help="run folder")
parser.add_argument("--project", default="some")
parser.add_argument("--follow", action="store_true", help="wait for what comes, until the run is finished")
options = parser.parse_args()

folder = os.path.abspath(options.run)
own_id = hashlib.sha256(folder.encode()).hexdigest()[:16]
there = wandb.init(project=options.project, name=os.path.basename(folder), id=own_id, resume="allow",
                   config=run_lines.settings(folder))
first, step, waiting = there.step, None, {}
# Lines of one step (training, evaluation, the end of an epoch) are one entry there: steps only ever go up.
for line in run_lines.lines(folder, options.follow):
    if step is not None and line["step"] != step and waiting:
        there.log(waiting, step=step)
        waiting = {}
    step = line["step"]
    if step > first or first == 0:
        waiting.update(run_lines.numbers(line))
if waiting:
    there.log(waiting, step=step)
there.finish()
