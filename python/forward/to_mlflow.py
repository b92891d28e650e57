#!/usr/bin/env python3
"""Sends a run's metrics to MLflow: to_mlflow.py RUN [--experiment NAME] [--follow]

Needs the package mlflow; where it sends to is MLflow's own setting (MLFLOW_TRACKING_URI). Each call makes a run there."""

import os
import re

import mlflow
import run_lines

options = run_lines.options(__doc__, "experiment")
mlflow.set_experiment(options.group)
with mlflow.start_run(run_name=os.path.basename(options.run)):
    # MLflow accepts at most a hundred parameters per call, each of at most 500 characters.
    settings = run_lines.settings(options.run)
    parameters = [(re.sub(r"[^\w./ -]", "_", key), str(value)[:500]) for key, value in settings.items()]
    for begin in range(0, len(parameters), 100):
        mlflow.log_params(dict(parameters[begin:begin + 100]))
    for line in run_lines.lines(options.run, options.follow):
        mlflow.log_metrics(run_lines.numbers(line), step=line["step"])
