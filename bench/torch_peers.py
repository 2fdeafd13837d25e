"""PyTorch's attention on one GPU, timed in the same run as glint: cuDNN and FlashAttention-2 behind scaled_dot_product_attention, and
cuBLAS as the ceiling of the matrix units.

    torch_peers.py [options] [-- gpu_bench and its options]

Prints the CSV of gpu_bench. With a gpu_bench, the two programs take turns cell by cell, and change places from one cell to the next, so that
a card that slows down slows both. The GPU idles between cells: the power limit punishes whoever comes second otherwise.
"""
import argparse
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
PEER_DTYPES = {"e4m3": "bf16"}  # no peer here takes e4m3: its bf16 is the yardstick
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "torch_fa2": SDPBackend.FLASH_ATTENTION}
SPIN_CLOCKS = 400_000  # keeps the GPU busy while the host queues the call, so that its latency is not timed


def median_ms(call, reps, warmup=3):
    for _ in range(warmup):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(reps):
        before = torch.cuda.Event(enable_timing=True)
        after = torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(SPIN_CLOCKS)
        before.record()
        call()
        after.record()
        torch.cuda.synchronize()
        times.append(before.elapsed_time(after))
    return sorted(times)[len(times) // 2]


def row(impl, direction, dtype, dim, causal, batch, heads, heads_kv, seqlen, ms):
    flops = (10.0 if direction == "bwd" else 4.0) * batch * heads * seqlen * seqlen * dim * (0.5 if causal else 1.0)
    print(f"{impl},{direction},{dtype},{dim},{causal},{batch},{heads},{heads_kv},{seqlen},{ms:.4f},{flops / ms * 1e-9:.1f},", flush=True)


def ceilings(reps):
    for dtype in DTYPES:
        for n in (4096, 8192):
            a = torch.randn(n, n, device="cuda", dtype=DTYPES[dtype])
            b = torch.randn(n, n, device="cuda", dtype=DTYPES[dtype])
            ms = median_ms(lambda: a @ b, reps)
            print(f"gemm,ceiling,{dtype},{n},,,,,,{ms:.4f},{2 * n**3 / ms * 1e-9:.1f},", flush=True)
    for n in (4096, 8192):
        a = torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn).t()
        one = torch.ones((), device="cuda")
        for fast in (True, False):
            ms = median_ms(lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=fast), reps)
            print(f"gemm{'' if fast else ' fp32 sums'},ceiling,e4m3,{n},,,,,,{ms:.4f},{2 * n**3 / ms * 1e-9:.1f},", flush=True)
    x = torch.randn(1 << 29, device="cuda")
    y = torch.empty_like(x)
    ms = median_ms(lambda: y.copy_(x), reps)
    print(f"copy GB/s,ceiling,,,,,,,,{ms:.4f},{8 * x.numel() / ms * 1e-6:.0f},", flush=True)


def torch_cell(names, cell, reps, backward):
    dtype, dim, causal, batch, heads, heads_kv, seqlen, _ = cell
    dtype = PEER_DTYPES.get(dtype, dtype)
    make = lambda h: torch.randn(batch, seqlen, h, dim, device="cuda", dtype=DTYPES[dtype], requires_grad=backward).transpose(1, 2)
    q, k, v = make(heads), make(heads_kv), make(heads_kv)
    for name in names:
        try:
            with sdpa_kernel([BACKENDS[name]]):
                call = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=heads != heads_kv)
                if backward:
                    o = call()
                    grad = torch.randn_like(o)
                    call = lambda: torch.autograd.grad(o, (q, k, v), grad, retain_graph=True)
                row(name, "bwd" if backward else "fwd", dtype, dim, causal, batch, heads, heads_kv, seqlen, median_ms(call, reps))
        except RuntimeError as error:
            print(f"{name},failed,{dtype},{dim},{causal},{seqlen},{str(error).splitlines()[0][:100]}", flush=True)


class Glint:
    """gpu_bench --cells: a line in, rows and an empty line out."""

    def __init__(self, command):
        self.process = subprocess.Popen(command + ["--cells"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()  # the header

    def run(self, cell):
        self.process.stdin.write(" ".join(str(x) for x in cell) + "\n")
        self.process.stdin.flush()
        while (line := self.process.stdout.readline().strip()):
            print(line, flush=True)
        if self.process.poll() is not None:
            sys.exit(f"gpu_bench ended with status {self.process.returncode}")

    def close(self):
        self.process.stdin.close()
        return self.process.wait(timeout=60)


def cells(options):
    for dtype in options.dtype.split(","):
        for dim in map(int, options.head_dim.split(",")):
            for causal in map(int, options.causal.split(",")):
                for seqlen in map(int, options.seqlen.split(",")):
                    heads = max(1, options.width // dim)
                    yield dtype, dim, causal, max(1, options.tokens // seqlen), heads, max(1, heads // options.group), seqlen, seqlen


def main():
    arguments = sys.argv[1:]
    command = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="cudnn,torch_fa2")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--head-dim", default="64,128,256")
    parser.add_argument("--causal", default="0,1")
    parser.add_argument("--seqlen", default="512,1024,2048,4096,8192,16384")
    parser.add_argument("--tokens", type=int, default=16384, help="batch * seqlen")
    parser.add_argument("--width", type=int, default=2048, help="heads * head_dim")
    parser.add_argument("--group", type=int, default=1, help="query heads for each key/value head")
    parser.add_argument("--reps", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop before a cell when so much time has passed")
    parser.add_argument("--backward", action="store_true", help="the backward pass; give gpu_bench the same option")
    parser.add_argument("--no-ceilings", action="store_true")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    torch.manual_seed(0)
    names = [name for name in options.peers.split(",") if name]
    print("impl,dir,dtype,hdim,causal,batch,heads,heads_kv,seqlen,ms,tflops,check", flush=True)
    if not options.no_ceilings:
        ceilings(options.reps)
    glint = Glint(command) if command else None
    for number, cell in enumerate(cells(options)):
        if time.monotonic() - start > options.seconds:
            print(f"# stopped after {options.seconds:.0f} s, before {cell}", flush=True)
            break
        turns = [lambda: torch_cell(names, cell, options.reps, options.backward)] + ([lambda: glint.run(cell)] if glint else [])
        for turn in turns if number % 2 == 0 else reversed(turns):
            turn()
            time.sleep(0.05)
    return glint.close() if glint else 0


if __name__ == "__main__":
    sys.exit(main())
