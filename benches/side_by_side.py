#!/usr/bin/env python3
"""Holds vit-attn's speed and memory against what people use now, on this machine, in one run.

    pip install torch timm transformers onnx onnxscript onnxruntime pillow
    cargo build --release
    python benches/side_by_side.py [--models s16,b16] [--batch 1] [--threads 2] [--rounds 3] [--runs 10] [--json]
    python benches/side_by_side.py --models s8 --size 480 --cls --runs 3    # many tokens, of which the CLS rows are read
    python benches/side_by_side.py --quick      # only whether it works: few runs, of no meaning

Everything runs on the CPU, on the same picture, with random weights of the same sizes and the same number of threads.
"Attention" below is all of it, or with --cls the CLS token's rows in every layer and head:

- vit-attn: `vit-attn bench --json` on each CPU backend, every layer's attention read to the host
- timm: PyTorch with fused attention off, every layer's attention read (a hook on each attention dropout)
- transformers: eager attention, `output_attentions=True`
- onnxruntime: timm's model exported and run, without attention: the floor

Each measurement has a process of its own, so that peaks of memory do not mix; the contenders take turns `--rounds`
times, so that what else the machine does falls on all of them. A figure is the median of the rounds' medians. Ratios
are the contender's time over that of vit-attn's fastest backend: above 1, vit-attn is faster.

At last the seed's whole process, `vit-attn run assets/cat-32.png`, stands against `python -c "import torch"` alone.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMM = {
    "s8": "vit_small_patch8_224", "s16": "vit_small_patch16_224", "b16": "vit_base_patch16_224",
    "l14": "vit_large_patch14_224",
}
# Patch, width, layers, heads.
SIZES = {"s8": (8, 384, 12, 6), "s16": (16, 384, 12, 6), "b16": (16, 768, 12, 12), "l14": (14, 1024, 24, 16)}
BACKENDS = ["flex", "ndarray"]
OTHERS = ["timm", "transformers", "onnxruntime"]


def main():
    args = arguments()
    if args.one:
        print(json.dumps(measure(*args.one.split(","), args)))
        return
    if args.quick:
        args.rounds, args.runs = 1, 2
    # Every library's own name for the same thing; children inherit them.
    for name in ["RAYON_NUM_THREADS", "MATMUL_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"]:
        os.environ[name] = str(args.threads)
    report = {"machine": machine(args), "models": {}, "failed": {}}
    for model in args.models.split(","):
        for batch in map(int, args.batch.split(",")):
            title = f"{model} at {args.size}, batch {batch}" + (", CLS rows" if args.cls else "")
            report["models"][title] = compare(model, batch, args, report["failed"])
    report["process"] = processes(args)
    print(json.dumps(report, indent=2) if args.json else table(report))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="s16,b16", help="of s8, s16, b16, l14")
    parser.add_argument("--size", type=int, default=224, help="side of the model's picture in pixels")
    parser.add_argument("--cls", action="store_true", help="read the CLS token's rows only")
    parser.add_argument("--batch", default="1", help="pictures at a time, such as 1,8")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--runs", type=int, default=10, help="timed runs of a turn")
    parser.add_argument("--image", default=str(ROOT / "assets/astronaut.jpg"))
    parser.add_argument("--binary", default=str(ROOT / "target/release/vit-attn"))
    parser.add_argument("--quick", action="store_true", help="only whether it works")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def machine(args):
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0] if names else cpu
    return {"cpu": cpu, "system": platform.platform(), "threads": args.threads, "rounds": args.rounds, "runs": args.runs}


def compare(model, batch, args, failed):
    """Median seconds and peak bytes of each contender, which take turns."""
    turns = {}
    for turn in range(args.rounds):
        for name in BACKENDS + OTHERS:
            if name in failed:
                continue
            print(f"{model}, batch {batch}, round {turn + 1}: {name} ...", file=sys.stderr)
            try:
                measured = ours(name, model, batch, args) if name in BACKENDS else theirs(name, model, batch, args)
                turns.setdefault(name, []).append(measured)
            except (subprocess.CalledProcessError, json.JSONDecodeError) as error:
                failed[name] = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
    return {
        name: {
            "seconds": statistics.median(turn["seconds"] for turn in measured),
            "fastest": min(turn["fastest"] for turn in measured),
            "peak_memory_bytes": max(turn["peak_memory_bytes"] or 0 for turn in measured),
        }
        for name, measured in turns.items()
    }


def ours(backend, model, batch, args):
    command = [args.binary, "bench", args.image, "--synthetic", model, "--backends", backend, "--batch", str(batch)]
    command += ["--size", str(args.size), "--runs", str(args.runs), "--json"] + (["--view", "cls"] if args.cls else [])
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    measured = json.loads(output.stdout)["measurements"][0]
    run = measured["run_seconds"]
    return {"seconds": run["median"], "fastest": run["min"], "peak_memory_bytes": measured["peak_memory_bytes"]}


def theirs(name, model, batch, args):
    command = [sys.executable, __file__, "--one", f"{name},{model},{batch}", "--image", args.image]
    command += ["--threads", str(args.threads), "--runs", str(args.runs), "--size", str(args.size)]
    command += ["--cls"] if args.cls else []
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(output.stdout.splitlines()[-1])


def measure(name, model, batch, args):
    """One contender, in this process: a first run, then timed ones."""
    prepare = {"timm": timm_run, "transformers": transformers_run, "onnxruntime": onnx_run}[name]
    run = prepare(model, picture(args.image, int(batch), args.size), args)
    run()
    seconds = [timed(run) for _ in range(args.runs)]
    return {"seconds": statistics.median(seconds), "fastest": min(seconds), "peak_memory_bytes": peak_memory()}


def timed(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def picture(path, batch, size):
    """`[batch, 3, size, size]`, squashed and spread from -1 to 1, as vit-attn does for random weights."""
    import numpy
    from PIL import Image

    image = Image.open(path).convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    pixels = numpy.asarray(image, dtype=numpy.float32).transpose(2, 0, 1) / 127.5 - 1.0
    return numpy.stack([pixels] * batch)


def torch_pixels(pixels, args):
    import torch

    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    return torch.from_numpy(pixels)


def timm_run(model, pixels, args):
    import timm

    pixels = torch_pixels(pixels, args)
    timm.layers.set_fused_attn(False)
    network = timm.create_model(TIMM[model], img_size=args.size, num_classes=1000).eval()
    kept = []
    for block in network.blocks:
        block.attn.attn_drop.register_forward_hook(lambda module, inputs, weights: kept.append(wanted(weights, args)))

    def run():
        kept.clear()
        logits = network(pixels).numpy()
        assert len(kept) == SIZES[model][2] and logits.shape[1] == 1000

    return run


def wanted(weights, args):
    """On the host; a copy where only some rows are wanted, so that the rest can go."""
    return weights[:, :, 0].numpy().copy() if args.cls else weights.numpy()


def transformers_run(model, pixels, args):
    from transformers import ViTConfig, ViTForImageClassification

    pixels = torch_pixels(pixels, args)
    patch, width, layers, heads = SIZES[model]
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=args.size, patch_size=patch, num_labels=1000,
    )
    config._attn_implementation = "eager"
    network = ViTForImageClassification(config).eval()

    def run():
        output = network(pixels, output_attentions=True)
        kept = [wanted(weights, args) for weights in output.attentions]
        assert len(kept) == layers and output.logits.shape[1] == 1000

    return run


def onnx_run(model, pixels, args):
    """timm's model, exported by another process, so that the memory is onnxruntime's and not PyTorch's."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.onnx"
        export = f"""
import sys, timm, torch
network = timm.create_model({TIMM[model]!r}, img_size={args.size}, num_classes=1000).eval()
pixels = torch.zeros({list(pixels.shape)})
torch.onnx.export(network, (pixels,), sys.argv[1], input_names=["pixels"], dynamo=True)
"""
        done = subprocess.run([sys.executable, "-c", export, str(path)], capture_output=True, text=True)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            sys.exit(f"the export to ONNX failed: {reason}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {"pixels": pixels}

    def run():
        assert session.run(None, feed)[0].shape[1] == 1000

    return run


def peak_memory():
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def processes(args):
    """Whole processes from start to end: the seed on a small picture against PyTorch's import alone."""
    with tempfile.TemporaryDirectory() as out:
        seed = [args.binary, "run", str(ROOT / "assets/cat-32.png"), "--backend", "flex", "--force", "--out", out]
        commands = {"vit-attn run assets/cat-32.png": seed, 'python -c "import torch"': [sys.executable, "-c", "import torch"]}
        turns = {name: [] for name in commands}
        # The first of each fills the file cache.
        for turn in range(args.rounds + 1):
            for name, command in commands.items():
                measured = process(command)
                if turn > 0:
                    turns[name].append(measured)
    return {
        name: {
            "seconds": statistics.median(seconds for seconds, _ in measured),
            "fastest": min(seconds for seconds, _ in measured),
            "peak_memory_bytes": max(peak for _, peak in measured),
        }
        for name, measured in turns.items()
    }


def process(command):
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with {child.returncode}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def table(report):
    machine = report["machine"]
    lines = [f"{machine['cpu']}, {machine['threads']} threads, {machine['rounds']} rounds of {machine['runs']} runs"]
    groups = {**report["models"], "whole process": report["process"]}
    for title, contenders in groups.items():
        own = [value["seconds"] for name, value in contenders.items() if name in BACKENDS or name.startswith("vit-attn")]
        best = min(own) if own else float("nan")
        lines += ["", f"{title:<34}  {'median':>10}  {'fastest':>10}  {'time ratio':>10}  {'memory':>8}"]
        for name, value in contenders.items():
            label = f"vit-attn on {name}" if name in BACKENDS else name
            seconds, fastest = (f"{1000 * value[key]:.1f} ms" for key in ["seconds", "fastest"])
            memory = f"{value['peak_memory_bytes'] / 1e6:.0f} MB"
            lines.append(f"{label:<34}  {seconds:>10}  {fastest:>10}  {value['seconds'] / best:>10.2f}  {memory:>8}")
    lines += [f"\n{name} was left out: {reason}" for name, reason in report["failed"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
