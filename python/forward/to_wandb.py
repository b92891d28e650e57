#!/usr/bin/env python3
"""Sends a run's metrics to Weights & Biases: to_wandb.py RUN [--project NAME] [--follow]

Needs the package wandb, and its login. Sent twice, nothing is doubled: the run there has an id of its own, and steps that it has
are passed over."""

import hashlib
import os

import run_lines
import wandb

options = run_lines.options(__doc__, "project")
own_id = hashlib.sha256(options.run.encode()).hexdigest()[:16]
there = wandb.init(project=options.group, name=os.path.basename(options.run), id=own_id, resume="allow",
                   config=run_lines.settings(options.run))
first, step, waiting = there.step, None, {}
# Lines of one step (training, evaluation, end of an epoch) form one entry, because W&B requires increasing
# steps.
for line in run_lines.lines(options.run, options.follow):
    if step is not None and line["step"] != step and waiting:
        there.log(waiting, step=step)
        waiting = {}
    step = line["step"]
    if step > first or first == 0:
        waiting.update(run_lines.numbers(line))
if waiting:
    there.log(waiting, step=step)
there.finish()
