"""Exported models in PyTorch against what the program computed; called by tests/exchange/hf_test.cc with a folder.

Each folder in it is a case: export/ (and seed/, where the library is drawn), expected.json (token rows, greedy text) and
expected.safetensors (logits of the rows, one after the other). Writes again/ (saved as it was loaded) and trained/ (after a step
of gradient descent, with its logits) for the program to bring back. Prints one line a case; exit code 1 when one is wrong."""

import json
import os
import shutil
import sys

import torch

root = sys.argv[1]
cases = sorted(name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name)))
sys.path.insert(0, os.path.join(root, cases[0], "export"))
import modeling_some  # noqa: E402
import tensors_some  # noqa: E402

assert "transformers" not in sys.modules
wrong = []


def check(case, what, right, found=""):
    if not right:
        wrong.append(f"{case}: {what} {found}")


def logits_of(model, rows):
    with torch.no_grad():
        return torch.cat([model(torch.tensor([row]))[0] for row in rows])


for case in cases:
    folder = os.path.join(root, case)
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
        expected = json.load(file)
    wanted = tensors_some.read_safetensors(os.path.join(folder, "expected.safetensors"))["logits"]
    model = modeling_some.load(os.path.join(folder, "export"))
    rows, causal = expected["rows"], model.config.setting("model.causal")
    logits = logits_of(model, rows)
    apart = float((logits - wanted).abs().max())
    check(case, "logits differ by", apart < 1e-5, apart)

    # Rows of different lengths in one batch, padded on either side, give the same numbers.
    longest = max(map(len, rows))
    pad = model.config.pad_token_id
    for side in ("left", "right"):
        tokens, real = [], []
        for row in rows:
            fill, ones = [pad] * (longest - len(row)), [True] * len(row)
            tokens.append(fill + row if side == "left" else row + fill)
            real.append([False] * len(fill) + ones if side == "left" else ones + [False] * len(fill))
        with torch.no_grad():
            padded = model(torch.tensor(tokens), real=torch.tensor(real))[torch.tensor(real)]
        check(case, f"padding on the {side} changes logits by", float((padded - wanted).abs().max()) < 2e-5,
              float((padded - wanted).abs().max()))

    if causal:
        # Read in pieces, with a KV cache.
        cache, pieces = modeling_some.Cache(), []
        with torch.no_grad():
            for begin, end in ((0, 5), (5, 6), (6, len(rows[0]))):
                pieces.append(model(torch.tensor([rows[0][begin:end]]), cache)[0])
        apart_cached = float((torch.cat(pieces) - wanted[:len(rows[0])]).abs().max())
        check(case, "a cache changes logits by", apart_cached < 1e-5, apart_cached)
        written = model.write(expected["prompt"], expected["tokens"])
        check(case, "greedy text differs at", written == expected["greedy"],
              next((i for i, (a, b) in enumerate(zip(written, expected["greedy"])) if a != b), len(written)))
        sampled = model.write(expected["prompt"], 40, temperature=0.9, top_p=0.95, seed=7)
        check(case, "sampled text differs", sampled == expected["sampled"])

    if os.path.isdir(os.path.join(folder, "seed")):
        seeded = modeling_some.load(os.path.join(folder, "seed"))
        check(case, "a library from its seed is stored", not any("experts.w" in name and "lora" not in name
                                                                for name in seeded.state_dict()))
        check(case, "logits with a drawn library differ", torch.equal(logits_of(seeded, rows), logits))
        for own, drawn in zip(model.layers, seeded.layers):
            for name in [] if own.experts.hadamard else own.experts.shapes:
                same = torch.equal(getattr(own.experts, name), getattr(drawn.experts, name))
                check(case, f"the drawn library differs in layer {own.layer},", same, name)

    modeling_some.save(model, os.path.join(folder, "again"))
    shutil.copy(os.path.join(folder, "export", "tokenizer.json"), os.path.join(folder, "again"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train()
    tokens = torch.tensor([rows[0]])
    loss = torch.nn.functional.cross_entropy(model(tokens)[0, :-1], tokens[0, 1:])
    loss.backward()
    learnt = [name for name, one in model.named_parameters() if one.grad is not None and one.grad.abs().max() > 0]
    check(case, "parameters that got no gradient:", len(learnt) >= 0.8 * len(list(model.parameters())), len(learnt))
    with torch.no_grad():
        for one in model.parameters():
            if one.grad is not None:
                one -= 0.1 * one.grad
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    frozen = {name for name, _ in model.named_buffers()}
    check(case, "what is frozen changed:", not (changed & frozen), changed & frozen)
    model.eval()
    modeling_some.save(model, os.path.join(folder, "trained"))
    shutil.copy(os.path.join(folder, "export", "tokenizer.json"), os.path.join(folder, "trained"))
    tensors_some.write_safetensors(os.path.join(folder, "trained.safetensors"), {"logits": logits_of(model, rows)})
    print(f"{case}: logits within {apart:.1e}")

for line in wrong:
    print("wrong:", line)
sys.exit(1 if wrong else 0)
