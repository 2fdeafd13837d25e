#!/usr/bin/env python3
"""Writes the small files that tests/io reads, with NumPy's and safetensors' own writers (pip install numpy safetensors).

Element i (row-major) of every float array is i * 0.25 - 3, of every integer array i - 3; the shape is [2, 3, 4].
"""
import itertools
import pathlib

import numpy as np
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent
count = np.arange(24)
floats, integers = (count * 0.25 - 3).reshape(2, 3, 4), (count - 3).reshape(2, 3, 4)
kinds = ["f2", "f4", "f8", "i4", "i8"]
for number, (kind, order, layout) in enumerate(itertools.product(kinds, "<>", "CF")):
    array = np.array(integers if kind[0] == "i" else floats, dtype=order + kind, order=layout)
    version = (number % 3 + 1, 0)
    name = f"{kind}_{'little' if order == '<' else 'big'}_{layout}_v{version[0]}.npy"
    with open(here / "npy" / name, "wb") as file:
        np.lib.format.write_array(file, array, version=version)
bf16 = (floats.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
np.save(here / "npy" / "bf16_bits.npy", bf16)
np.save(here / "npy" / "complex.npy", floats.astype(np.complex64))
np.save(here / "npy" / "record.npy", np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]))
np.save(here / "npy" / "scalar.npy", np.float32(-3))
np.save(here / "npy" / "empty.npy", np.zeros((0, 5), np.float32))
tensors = {f"x.{kind}": (integers if kind[0] == "i" else floats).astype(kind) for kind in kinds}
tensors["other.u1"] = np.arange(3, dtype=np.uint8)
save_file(tensors, here / "sample.safetensors", metadata={"purpose": "tests of the reader", "words": '["a", "b"]'})
