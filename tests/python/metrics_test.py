"""metrics.jsonl against its schema, and what the two forwarders send of it: metrics_test.py SOME (the program)."""

import json
import os
import subprocess
import sys
import tempfile

source = os.environ["SOME_SOURCE_DIR"]
program = os.path.abspath(sys.argv[1])
with open(os.path.join(source, "docs/metrics.schema.json"), encoding="utf-8") as file:
    schema = json.load(file)


def fits(value, rule):
    """Implements the part of JSON Schema that the file uses; anything else in it is an error."""
    unknown = set(rule) - {"$ref", "oneOf", "const", "type", "properties", "required", "additionalProperties", "items",
                           "description", "title", "$schema", "$defs"}
    assert not unknown, unknown
    if "$ref" in rule:
        return fits(value, schema["$defs"][rule["$ref"].rsplit("/", 1)[1]])
    if "oneOf" in rule:
        return sum(fits(value, one) for one in rule["oneOf"]) == 1
    if "const" in rule:
        return value == rule["const"]
    kind = rule["type"]
    if kind == "object":
        return (isinstance(value, dict) and all(name in value for name in rule["required"]) and
                all(name in rule["properties"] and fits(item, rule["properties"][name]) for name, item in value.items()))
    if kind == "array":
        return isinstance(value, list) and all(fits(item, rule["items"]) for item in value)
    if kind == "string":
        return isinstance(value, str)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (kind == "number" and isinstance(value, float))


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    short = ["train.max_steps=6", "train.measure_every=2", "train.eval_every=3", "train.warmup_steps=1", "data.vocab=320",
             "data.train_documents=60", "data.valid_documents=8", "train.device=cpu"]
    recipe = os.path.join(source, "recipes")
    runs = {"plain": ["tiny.toml"], "dense": ["tiny.toml", "model.ffn=dense", "some.balance_loss=0.1"],
            "pads": ["tiny.toml", "data.count_pads=true", "train.eval_average=batches", "some.balance_loss=0.1"],
            "stages": ["continual.toml", "model.d_model=32", "model.layers=2", "model.heads=2", "model.seq_len=64",
                       "some.experts=8", "some.d_ffn=16", "some.top_k=2"]}
    seen = set()
    for name, words in runs.items():
        subprocess.run([program, "train", os.path.join(recipe, words[0]), *short, *words[1:], "--out", "runs/" + name],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for line in read(f"runs/{name}/metrics.jsonl"):
            assert fits(line, schema), f"{name}: {line}"
            seen.add(line["kind"])
            broken = {**line, "loss": "much"} if "loss" in line else {**line, "other": 1}
            assert not fits(broken, schema), "the schema lets everything through"
    assert seen == {"train", "epoch", "eval", "stage"}, seen

    def forward(script, run, step=0):
        environment = {**os.environ, "PYTHONPATH": os.path.join(source, "tests/python/stand_in"), "STAND_IN_LOG": "told.json",
                       "STAND_IN_STEP": str(step)}
        subprocess.run([sys.executable, os.path.join(source, "python/forward", script), run, "--follow"], check=True,
                       env=environment)
        with open("told.json", encoding="utf-8") as file:
            return json.load(file)

    lines = read("runs/plain/metrics.jsonl")
    last = [line for line in lines if line["kind"] == "eval"][-1]
    for script in ("to_wandb.py", "to_mlflow.py"):
        told = forward(script, "runs/plain")
        sent = {}
        for one in told:
            if "values" in one:
                sent.update(one["values"])
        assert sent["eval/loss"] == last["loss"], script
        assert sent["eval/layer1/validation/gini"] == last["layers"][1]["validation"]["gini"], script
        assert "train/layer0/entropy" in sent and "epoch/train_loss" in sent, script
        assert {one["step"] for one in told if "step" in one} == {line["step"] for line in lines}, script
    first = forward("to_wandb.py", "runs/plain")[0]["init"]
    assert first["config"]["some.top_k"] == 2 and first["resume"] == "allow"
    assert [one["step"] for one in forward("to_wandb.py", "runs/plain", step=4)[1:]] == [6]  # the rest it has
    parameters = {}
    for one in forward("to_mlflow.py", "runs/stages"):
        parameters.update(one.get("params", {}))
    assert parameters["model.d_model"] == "32"
    os.chdir("/")
print("metrics.jsonl fits its schema; both forwarders sent it")
