"""Reads and writes safetensors files with NumPy and PyTorch only."""

import json
import os

import numpy as np
import torch

TYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32, "BF16": np.int16}


def read_safetensors(path):
    """Returns the tensors of one file by name."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > os.path.getsize(path) - 8:
            raise ValueError(f"{path} is not a valid safetensors file: its header would be {size} bytes long")
        header = json.loads(file.read(size))
    data = np.memmap(path, np.uint8, "c", offset=8 + size) if os.path.getsize(path) > 8 + size else np.empty(0, np.uint8)
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        if about["dtype"] not in TYPES:
            raise ValueError(f"{path}: {name} has element type {about['dtype']}; must be one of {', '.join(TYPES)}")
        begin, end = about["data_offsets"]
        tensor = torch.from_numpy(data[begin:end].view(TYPES[about["dtype"]]).reshape(about["shape"]))
        tensors[name] = tensor.view(torch.bfloat16) if about["dtype"] == "BF16" else tensor
    return tensors


def write_safetensors(path, tensors):
    names = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32"}
    header, parts, position = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        tensor = tensor.detach().cpu().contiguous()
        if tensor.dtype not in names:
            raise ValueError(f"{name} is of {tensor.dtype}, which is not written here")
        if tensor.dtype == torch.bfloat16:
            parts.append(tensor.view(torch.int16).numpy().tobytes())
        else:
            parts.append(tensor.numpy().tobytes())
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [position, position + len(parts[-1])]}
        position += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for part in parts:
            file.write(part)
