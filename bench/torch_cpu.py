#!/usr/bin/env python3
"""PyTorch's CPU attention and glint in turns, in one process, on the same tensors and cores; prints ratios and geometric means.

One measurement takes turns: a few calls of the one, a pause in which the other's worker threads go to sleep, a few calls of the other; the
medians over all turns are compared. Both results are compared with each other before anything is timed. With --backward the backward pass
alone is measured, PyTorch's by its own operator, without autograd's bookkeeping. Needs PyTorch and libglint.so.
"""
import argparse
import ctypes
import datetime
import math
import os
import platform
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4), ("dtype", ctypes.c_int), ("rank", ctypes.c_int32)]


class Problem(ctypes.Structure):
    """glint_problem of include/glint.h."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("flags", ctypes.c_uint32)]
        + [(name, Tensor) for name in ("q", "k", "v", "o", "lse")]
        + [("scale", ctypes.c_float), ("softcap", ctypes.c_float), ("causal", ctypes.c_int32), ("windowed", ctypes.c_int32)]
        + [("window_left", ctypes.c_int64), ("window_right", ctypes.c_int64)]
        + [(name, Tensor) for name in ("alibi_slopes", "sinks", "bias", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")]
        + [("max_seqlen_q", ctypes.c_int64), ("max_seqlen_k", ctypes.c_int64), ("page_table", Tensor), ("page_size", ctypes.c_int64)]
        + [(name, Tensor) for name in ("cache_seqlens", "k_new", "v_new", "rotary_cos", "rotary_sin")]
        + [("rotary_interleaved", ctypes.c_int32), ("num_splits", ctypes.c_int32), ("dropout_p", ctypes.c_float)]
        + [("dropout_seed", ctypes.c_uint64), ("dropout_offset", ctypes.c_uint64)]
        + [(name, Tensor) for name in ("descale_q", "descale_k", "descale_v")]
        + [("stream", ctypes.c_void_p), ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t)]
    )


class Gradients(ctypes.Structure):
    """glint_gradients of include/glint.h."""

    _fields_ = ([("struct_size", ctypes.c_size_t)] + [(name, Tensor) for name in ("d_o", "d_lse", "dq", "dk", "dv", "dsinks", "dbias")]
                + [("accumulate", ctypes.c_int32)])


class Options(ctypes.Structure):
    """glint_options of include/glint.h."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("engine", ctypes.c_int), ("isa", ctypes.c_int), ("threads", ctypes.c_int32),
                ("device", ctypes.c_int32), ("arch", ctypes.c_int32), ("kernel", ctypes.c_char_p)]


DTYPES = {torch.float32: 1, torch.bfloat16: 2}
ENGINE_CPU = 1


def tensor_of(x):
    """A view of a PyTorch tensor, axes in glint's order."""
    rest = [0] * (4 - x.dim())
    return Tensor(x.data_ptr(), (ctypes.c_int64 * 4)(*x.shape, *rest), (ctypes.c_int64 * 4)(*x.stride(), *rest), DTYPES[x.dtype], x.dim())


class Glint:
    def __init__(self, path, threads):
        self.library = ctypes.CDLL(os.path.abspath(path))
        self.library.glint_last_error.restype = ctypes.c_char_p
        self.library.glint_last_error.argtypes = [ctypes.c_void_p]
        self.library.glint_forward.argtypes = [ctypes.c_void_p, ctypes.POINTER(Problem)]
        self.library.glint_backward.argtypes = [ctypes.c_void_p, ctypes.POINTER(Problem), ctypes.POINTER(Gradients)]
        self.context = ctypes.c_void_p()
        options = Options(struct_size=ctypes.sizeof(Options), engine=ENGINE_CPU, threads=threads)
        if self.library.glint_open(ctypes.byref(options), ctypes.byref(self.context)):
            sys.exit("glint_open: " + self.library.glint_last_error(None).decode())

    def problem(self, q, k, v, o, causal):
        return Problem(struct_size=ctypes.sizeof(Problem), q=tensor_of(q), k=tensor_of(k), v=tensor_of(v), o=tensor_of(o), causal=int(causal))

    def forward(self, problem):
        if self.library.glint_forward(self.context, ctypes.byref(problem)):
            sys.exit("glint_forward: " + self.library.glint_last_error(self.context).decode())

    def backward(self, problem, gradients):
        if self.library.glint_backward(self.context, ctypes.byref(problem), ctypes.byref(gradients)):
            sys.exit("glint_backward: " + self.library.glint_last_error(self.context).decode())


def times(call, budget):
    """Seconds of each call; the first is a warm-up and not counted."""
    call()
    taken, start = [], time.perf_counter()
    while not taken or time.perf_counter() - start < budget:
        before = time.perf_counter()
        call()
        taken.append(time.perf_counter() - before)
    return taken


def in_turns(first, second, budget, turns):
    taken = [], []
    for _ in range(turns):
        for call, list_of in zip((first, second), taken):
            time.sleep(0.05)
            list_of += times(call, budget / turns)
    return [statistics.median(t) for t in taken]


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def commit():
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=os.path.dirname(os.path.abspath(__file__)), capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def measure(glint, dtype, head_dim, causal, seqlen, arguments):
    heads = arguments.heads
    q, k, v = (torch.randn(1, seqlen, heads, head_dim, dtype=dtype) for _ in range(3))
    o = torch.full_like(q, math.nan)
    problem = glint.problem(q, k, v, o, causal)
    peer = [t.transpose(1, 2) for t in (q, k, v)]
    expected = F.scaled_dot_product_attention(*peer, is_causal=causal).transpose(1, 2)
    glint.forward(problem)
    error = (o.float() - expected.float()).abs().max().item()
    if not error <= (0.04 if dtype == torch.bfloat16 else 1e-4):
        sys.exit(f"results differ by {error} for {dtype}, head_dim {head_dim}, causal {causal}, seqlen {seqlen}")
    return in_turns(lambda: F.scaled_dot_product_attention(*peer, is_causal=causal), lambda: glint.forward(problem), arguments.seconds, arguments.turns)


def measure_backward(glint, dtype, head_dim, causal, seqlen, arguments):
    shape = 1, seqlen, arguments.heads, head_dim
    q, k, v, d_o = (torch.randn(shape, dtype=dtype) for _ in range(4))
    peer = [t.transpose(1, 2) for t in (q, k, v)]
    o, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*peer, 0.0, causal)
    def theirs():
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(d_o.transpose(1, 2), *peer, o, lse, 0.0, causal)
    outputs = [torch.full_like(q, math.nan) for _ in range(3)]
    ours_o, ours_lse = torch.full_like(q, math.nan), torch.full((1, arguments.heads, seqlen), math.nan)
    problem = glint.problem(q, k, v, ours_o, causal)
    problem.lse = tensor_of(ours_lse)
    glint.forward(problem)
    dq, dk, dv = map(tensor_of, outputs)
    gradients = Gradients(struct_size=ctypes.sizeof(Gradients), d_o=tensor_of(d_o), dq=dq, dk=dk, dv=dv)
    glint.backward(problem, gradients)
    for name, got, expected in zip(("dq", "dk", "dv"), outputs, theirs()):
        expected = expected.transpose(1, 2).float()
        error = (got.float() - expected).abs().max().item() / expected.abs().max().item()
        if not error <= (0.03 if dtype == torch.bfloat16 else 1e-4):
            sys.exit(f"{name} differs by {error} of the largest for {dtype}, head_dim {head_dim}, causal {causal}, seqlen {seqlen}")
    return in_turns(theirs, lambda: glint.backward(problem, gradients), arguments.seconds, arguments.turns)


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default="build/libglint.so")
    parser.add_argument("--output", help="CSV file")
    parser.add_argument("--backward", action="store_true", help="the backward pass instead of the forward pass")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["float32", "bfloat16"])
    parser.add_argument("--head-dims", type=lambda text: [int(n) for n in text.split(",")], default=[64, 128])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--seqlens", type=lambda text: [int(n) for n in text.split(",")], help="default: 512,2048,8192; backward: 512,2048")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each implementation and shape")
    parser.add_argument("--turns", type=int, default=4)
    arguments = parser.parse_args()
    arguments.seqlens = arguments.seqlens or ([512, 2048] if arguments.backward else [512, 2048, 8192])
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    glint = Glint(arguments.library, arguments.threads)

    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = "backward" if arguments.backward else "forward"
    lines = [f"# {stamp}, glint {commit()}, torch {torch.__version__}, {cpu_name()}, {arguments.threads} threads, {name} pass",
             "dtype,head_dim,causal,heads,seqlen,torch_ms,glint_ms,torch_gflops,glint_gflops,ratio"]
    print("\n".join(lines), flush=True)
    ratios = {False: [], True: []}
    for dtype in (getattr(torch, name) for name in arguments.dtypes):
        for head_dim in arguments.head_dims:
            for causal in (False, True):
                for seqlen in arguments.seqlens:
                    measured = measure_backward if arguments.backward else measure
                    peer, ours = measured(glint, dtype, head_dim, causal, seqlen, arguments)
                    gflop = (10e-9 if arguments.backward else 4e-9) * arguments.heads * seqlen * seqlen * head_dim * (0.5 if causal else 1)
                    ratios[causal].append(peer / ours)
                    lines.append(f"{str(dtype)[6:]},{head_dim},{int(causal)},{arguments.heads},{seqlen},{peer * 1e3:.4f},{ours * 1e3:.4f},"
                                 f"{gflop / peer:.1f},{gflop / ours:.1f},{peer / ours:.3f}")
                    print(lines[-1], flush=True)
    everything = ratios[False] + ratios[True]
    lines.append(f"# torch time / glint time: geometric mean {geometric_mean(everything):.3f}, causal {geometric_mean(ratios[True]):.3f}, "
                 f"not causal {geometric_mean(ratios[False]):.3f}, least {min(everything):.3f}")
    print(lines[-1])
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
