#!/usr/bin/env python3
"""One training step in PyTorch, to compare the program with (docs/performance.md).

    bench/peer_train.py [FORM...] [--variants packed-compiled-graph,padded-compiled-graph] [--batch 32]

FORM is a recipe's name: a1, a4, b2, dense-match, dense-conv, features, mod-shift-gentle, mod-conv, moe-top2. Best effort
with what PyTorch offers: fused attention, grouped GEMMs, bf16 with fp32 masters, fused AdamW, torch.compile, key updates
on the device, no wait for the host inside a step. `padded` computes all positions; `packed` only real tokens, filled up
to one length for all batches so that the whole step can be recorded as a CUDA graph (`-graph`) and launched as one.
Prints one JSON object per line: ms per step, how many of them the GPU computes, non-padding tokens/s, memory. Needs a
GPU; --rehearse runs two steps of tiny models on the CPU.
"""
import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from peers.model import FORMS, VOCABULARY, Batch, Model, form, varlen_attn  # noqa: E402

PAD, TAPS = 1, 3
VARIANTS = [shape + how for shape in ("packed", "padded") for how in ("", "-compiled", "-graph", "-compiled-graph")]


def batches(count, packed, rows, length, device):
    """Returns batches of documents of about 215 tokens, one per row, and their mean number of non-padding tokens."""
    generator = torch.Generator().manual_seed(1)
    longest = [(torch.randn(rows, generator=generator) * 85 + 215).clamp(min(60, length), length).long()
               for _ in range(count)]
    total = -(-max(int(one.sum()) for one in longest) // 256) * 256
    found = []
    for own in longest:
        tokens = torch.randint(3, VOCABULARY, (rows, length), generator=generator)
        inside = torch.arange(length)[None] < own[:, None]
        targets = tokens.roll(-1, 1)
        targets[torch.arange(length)[None] >= own[:, None] - 1] = -100
        positions = torch.arange(length).expand(rows, length)
        tokens[~inside] = PAD
        real, starts = inside.float(), None
        if packed:
            tokens, targets, positions, real = tokens[inside], targets[inside], positions[inside], real[inside]
            left = total - len(tokens)  # padding is in sequences of its own
            own = torch.cat([own, (left - torch.arange(-(-total // length)) * length).clamp(0, length)])
            tokens, targets = F.pad(tokens, (0, left), value=PAD), F.pad(targets, (0, left), value=-100)
            positions, real = torch.cat([positions, torch.arange(left) % length]), F.pad(real, (0, left))
            starts = F.pad(own.cumsum(0), (1, 0)).to(torch.int32).to(device)
        tokens, targets, positions, real = (t.reshape(-1).to(device) for t in (tokens, targets, positions, real))
        index = torch.arange(len(tokens), device=device)
        past = torch.stack([torch.where(positions >= j, index - j + 1, 0) for j in range(1, TAPS + 1)], 1)
        found.append(Batch(tokens, positions, targets, past, real, starts, rows, length))
    return found, sum(int(one.sum()) for one in longest) / count


def record(step, sample):
    """Records one step as a CUDA graph; returns a function that copies a batch into place and launches the graph."""
    place = replace(sample, **{name: getattr(sample, name).clone() for name in
                               ("tokens", "positions", "targets", "past", "real")})
    if sample.starts is not None:
        place.starts = sample.starts.clone()
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        for _ in range(4):
            step(place)
    torch.cuda.current_stream().wait_stream(other)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step(place)

    def run(batch):
        for to, source in zip(place.tensors(), batch.tensors()):
            to.copy_(source)
        graph.replay()
        return kept

    return run


def measure(shape, variant, options):
    device = "cpu" if options.rehearse else "cuda"
    torch.manual_seed(0)
    compiled, graph = "compiled" in variant, variant.endswith("graph")
    packed = variant.startswith("packed")
    if packed and varlen_attn is None:
        raise RuntimeError("this PyTorch has no attention over sequences of different lengths")
    model = Model(shape, options.length).to(device)
    if device == "cuda":  # frozen libraries in bf16, as the program stores them
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                if name in ("w1", "w2"):
                    setattr(module, name, buffer.to(torch.bfloat16))
    parameters = list(model.parameters())
    extra = {"capturable": graph, "fused": True} if device == "cuda" else {}
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, **extra)
    forward = torch.compile(model) if compiled else model
    update = torch.compile(model.update_keys) if compiled else model.update_keys
    data, real = batches(4, packed, options.batch, options.length, device)

    def step(batch):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda", cache_enabled=not graph):
            loss, routed = forward(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        update(routed, batch.real)
        return loss

    if device == "cpu":
        for batch in data[:2]:
            loss = step(batch)
        return {"loss": round(float(loss), 3), "trained": sum(p.numel() for p in parameters)}
    run = record(step, data[0]) if graph else step
    for i in range(options.warmup):
        run(data[i % len(data)])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(3):
        start = time.time()
        for i in range(options.steps):
            loss = run(data[i % len(data)])
        torch.cuda.synchronize()
        seconds.append((time.time() - start) / options.steps)
    memory = torch.cuda.max_memory_allocated()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for batch in data:
            run(batch)
        torch.cuda.synchronize()
    kernels = sum(event.self_device_time_total for event in profile.key_averages()) / 1e3 / len(data)
    middle = sorted(seconds)[1]
    return {"ms": round(1e3 * middle, 2), "kernels_ms": round(kernels, 2), "real_tokens_per_s": round(real / middle),
            "memory_gib": round(memory / 2**30, 2), "trained": sum(p.numel() for p in parameters),
            "loss": round(float(loss), 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forms", nargs="*", metavar="FORM", help="any of: " + " ".join(FORMS))
    parser.add_argument("--variants", default="packed-compiled-graph", help="any of: " + " ".join(VARIANTS))
    parser.add_argument("--steps", type=int, default=20, help="steps per measurement; the median of three is printed")
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, help="rows (default 32)")
    parser.add_argument("--length", type=int, default=768, help="positions per row (default 768)")
    for name in ("d", "layers", "heads", "experts", "hidden"):
        parser.add_argument(f"--{name}", type=int, help="instead of the form's")
    parser.add_argument("--rehearse", action="store_true", help="two steps of tiny models on the CPU")
    options = parser.parse_args()
    forms, variants = options.forms or ["a4", "b2", "features", "dense-match"], options.variants.split(",")
    if options.rehearse:
        options.batch, options.length = 2, 16
        options.d, options.layers, options.heads, options.hidden = 32, 2, 2, 48
        variants = ["padded"]
    for unknown in [name for name in forms if name not in FORMS] + [name for name in variants if name not in VARIANTS]:
        parser.error(f"{unknown}: not a form ({' '.join(FORMS)}) or variant ({' '.join(VARIANTS)})")
    torch.set_float32_matmul_precision("high")
    for name in forms:
        changes = {key: getattr(options, key) for key in ("d", "layers", "heads", "experts", "hidden")}
        for variant in variants:
            line = {"peer": name, "variant": variant, "torch": torch.__version__}
            try:
                line |= measure(form(name, **changes), variant, options)
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
