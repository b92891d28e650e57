#!/usr/bin/env python3
"""Sends a run's metrics to MLflow: to_mlflow.py RUN [--experiment NAME] [--follow]

Needs the package mlflow; where it sends to is MLflow's own setting (MLFLOW_TRACKING_URI). Each call makes a run there."""

import argparse
import os
import re

import mlflow
import run_lines

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("run", help="run folder")
parser.add_argument("--experiment", default="some")
parser.add_argument("--follow", action="store_true", help="wait for what comes, until the run is finished")
options = parser.parse_args()

folder = os.path.abspath(options.run)
mlflow.set_experiment(options.experiment)
with mlflow.start_run(run_name=os.path.basename(folder)):
    # MLflow takes a hundred parameters at once, each of at most 500 characters.
    parameters = [(re.sub(r"[^\w./ -]", "_", key), str(value)[:500]) for key, value in run_lines.settings(folder).items()]
    for begin in range(0, len(parameters), 100):
        mlflow.log_params(dict(parameters[begin:begin + 100]))
    for line in run_lines.lines(folder, options.follow):
        mlflow.log_metrics(run_lines.numbers(line), step=line["step"])
