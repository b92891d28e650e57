#!/usr/bin/env python3
"""Tokens per second that a careful PyTorch user gets when a model generates text (docs/performance.md).

    bench/peer_generate.py [FORM...] [--sequences 1,16,256,1024] [--tokens 256]

FORM: dense-match (default), dense-conv, mod-shift-gentle. Static key/value cache, bf16 weights, one step compiled and
recorded as a CUDA graph, sampling on the device; nothing waits for the host. Prints one JSON object per line. Needs a
GPU; --rehearse generates three tokens with tiny models on the CPU.
"""
import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from peers.model import Model, form  # noqa: E402

FORMS = ("dense-match", "dense-conv", "mod-shift-gentle")


class Step:
    """Computes the blocks of a decoding step; earlier states come from a table of all positions so far."""

    def __init__(self, history, past, position):
        self.history, self.past, self.position = history, past, position

    def table(self, x):
        self.history.index_copy_(0, self.position + 1, x.unsqueeze(0).to(self.history.dtype))
        return self.history.flatten(0, 1)


class Decoder(torch.nn.Module):
    def __init__(self, model, sequences, length):
        super().__init__()
        self.model = model
        shape, like = model.layers[0].heads, model.embed.weight
        d = like.shape[1]
        cache = (sequences, shape, length, d // shape)
        self.keys = [like.new_zeros(cache) for _ in model.layers]
        self.values = [like.new_zeros(cache) for _ in model.layers]
        self.history = [like.new_zeros(length + 1, sequences, d) for _ in model.layers]
        self.register_buffer("row", torch.arange(sequences, device=like.device))
        self.register_buffer("places", torch.arange(length, device=like.device))
        self.register_buffer("taps", torch.arange(1, 4, device=like.device))

    def forward(self, tokens, position):
        model, n = self.model, len(tokens)
        x = model.scale * model.embed(tokens) + model.places[position].to(model.embed.weight.dtype)
        mask = (self.places <= position)[None, None, None]
        past = (position + 1 - self.taps).clamp(min=0)[None] * n + self.row[:, None]
        for i, layer in enumerate(model.layers):
            q, k, v = layer.qkv(x).view(n, 3, layer.heads, 1, -1).unbind(1)
            self.keys[i].index_copy_(2, position, k)
            self.values[i].index_copy_(2, position, v)
            mixed = attention(q, self.keys[i], self.values[i], mask)
            x = layer.norm1(x + layer.out(mixed.reshape(n, -1)))
            y, _ = layer.block(x, Step(self.history[i], past, position))
            x = layer.norm2(x + y.to(x.dtype))
        probability = (model.head(x).float() / 0.8).softmax(-1)
        return (probability / torch.empty_like(probability).exponential_(1)).argmax(-1)


def attention(q, k, v, mask):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5  # PyTorch 1, for --rehearse
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


@torch.no_grad()
def measure(shape, sequences, options):
    torch.manual_seed(0)
    device = "cpu" if options.rehearse else "cuda"
    length = options.tokens + 64
    model = Model(shape, length).to(device).eval()
    if device == "cuda":
        model = model.to(torch.bfloat16)
        for layer in model.layers:  # routing stays in fp32, as in the program
            for name in ("keys", "bias"):
                if hasattr(layer.block, name):
                    setattr(layer.block, name, getattr(layer.block, name).float())
    decoder = Decoder(model, sequences, length)
    tokens = torch.zeros(sequences, dtype=torch.long, device=device)
    position = torch.zeros(1, dtype=torch.long, device=device)
    run = decoder if options.rehearse else torch.compile(decoder)

    def step():
        tokens.copy_(run(tokens, position))
        position.add_(1)

    if options.rehearse:
        for _ in range(options.tokens):
            step()
        return {"token": int(tokens[0])}
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(other)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    seconds = []
    for _ in range(3):
        position.zero_()
        torch.cuda.synchronize()
        start = time.time()
        for _ in range(options.tokens):
            graph.replay()
        torch.cuda.synchronize()
        seconds.append(time.time() - start)
    middle = sorted(seconds)[1]
    return {"tokens_per_s": round(sequences * options.tokens / middle), "step_us": round(1e6 * middle / options.tokens, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forms", nargs="*", metavar="FORM", help="any of: " + " ".join(FORMS))
    parser.add_argument("--sequences", default="1,16,256,1024", help="at once (default 1,16,256,1024)")
    parser.add_argument("--tokens", type=int, default=256, help="per sequence (default 256)")
    parser.add_argument("--rehearse", action="store_true", help="three tokens by tiny models on the CPU")
    options = parser.parse_args()
    forms, changes = options.forms or ["dense-match"], {}
    if unknown := [name for name in forms if name not in FORMS]:
        parser.error(f"{unknown[0]}: not a form; forms: {' '.join(FORMS)}")
    if options.rehearse:
        options.sequences, options.tokens, changes = "2", 3, {"d": 32, "layers": 2, "heads": 2, "hidden": 48}
    for name in forms:
        for sequences in map(int, options.sequences.split(",")):
            line = {"peer": name, "sequences": sequences, "torch": torch.__version__}
            try:
                line |= measure(form(name, **changes), sequences, options)
            except Exception as error:  # the others are still worth having
                if options.rehearse:
                    raise
                line["failed"] = f"{type(error).__name__}: {error}"[:300]
            print(json.dumps(line), flush=True)
            if not options.rehearse:
                torch._dynamo.reset()
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
