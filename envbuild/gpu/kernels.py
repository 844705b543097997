"""Compiled kernels on this GPU, each against PyTorch's own operation. PTX may not be compiled at run time: a machine
code that is missing for this GPU is a failure then, and no slow start.

Each case is one function; it raises an error, or returns what it compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

MARK = "envbuild-kernel "
NO_JIT = {"CUDA_DISABLE_PTX_JIT": "1"}  # CUDA C++ Programming Guide, environment variables


def matrix_product(torch: Any) -> str:
    """Compare a product of matrices with that of the CPU."""
    torch.manual_seed(1)
    left, right = torch.randn(256, 256), torch.randn(256, 256)
    close(torch, (left.cuda() @ right.cuda()).cpu(), left @ right, 1e-2)
    half = (left.cuda().half() @ right.cuda().half()).float().cpu()
    close(torch, half, left @ right, 0.3)
    return "256 x 256 in float32 and float16, against the CPU"


def attention(torch: Any) -> str:
    """Compare scaled dot-product attention with that of the CPU."""
    torch.manual_seed(2)
    inputs = [torch.randn(2, 4, 64, 32) for _ in range(3)]
    run = torch.nn.functional.scaled_dot_product_attention
    close(torch, run(*[item.cuda() for item in inputs]).cpu(), run(*inputs), 1e-2)
    return "2 x 4 x 64 x 32, against the CPU"


def adam(torch: Any, optimizer: Callable[..., Any]) -> str:
    """Compare three steps of an optimizer with torch.optim.AdamW."""
    torch.manual_seed(3)
    start, gradients = torch.randn(4096), [torch.randn(4096) for _ in range(3)]
    found = []
    for make, device in ((optimizer, "cuda"), (torch.optim.AdamW, "cpu")):
        weight = torch.nn.Parameter(start.clone().to(device))
        steps = make([weight], lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
        for gradient in gradients:
            weight.grad = gradient.to(device)
            steps.step()
        found.append(weight.detach().cpu())
    close(torch, found[0], found[1], 1e-4)
    return "3 steps of 4096 values, against torch.optim.AdamW"


def deepspeed_adam(torch: Any) -> str:
    """Compare DeepSpeed's FusedAdam."""
    return adam(torch, import_module("deepspeed.ops.adam").FusedAdam)


def apex_adam(torch: Any) -> str:
    """Compare apex's FusedAdam."""
    return adam(torch, import_module("apex.optimizers").FusedAdam)


def apex_layer_norm(torch: Any) -> str:
    """Compare apex's FusedLayerNorm."""
    torch.manual_seed(4)
    layer = import_module("apex.normalization").FusedLayerNorm(512).cuda()
    values = torch.randn(16, 512)
    close(torch, layer(values.cuda()).detach().cpu(), torch.nn.functional.layer_norm(values, (512,)), 1e-4)
    return "16 x 512, against torch's layer_norm"


def flash_attention(torch: Any) -> str:
    """Compare flash-attn's function with torch's, in float16."""
    torch.manual_seed(5)
    run = import_module("flash_attn").flash_attn_func
    inputs = [torch.randn(2, 64, 4, 64, device="cuda", dtype=torch.float16) for _ in range(3)]
    own = torch.nn.functional.scaled_dot_product_attention(*[item.float().transpose(1, 2) for item in inputs])
    close(torch, run(*inputs).float().cpu(), own.transpose(1, 2).cpu(), 2e-2)
    return "2 x 64 x 4 x 64 in float16, against torch's attention"


def engine_linear(torch: Any) -> str:
    """Compare Transformer Engine's Linear with torch's."""
    torch.manual_seed(6)
    layer = import_module("transformer_engine.pytorch").Linear(128, 64, bias=True).cuda()
    values = torch.randn(32, 128, device="cuda")
    own = torch.nn.functional.linear(values, layer.weight, layer.bias)
    close(torch, layer(values).detach().cpu(), own.detach().cpu(), 2e-2)
    return "32 x 128 x 64, against torch's linear"


# case → (layer of the image that it needs, function)
CASES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "matrix product of torch": ("torch", matrix_product),
    "attention of torch": ("torch", attention),
    "FusedAdam of DeepSpeed": ("deepspeed", deepspeed_adam),
    "FusedAdam of apex": ("apex", apex_adam),
    "FusedLayerNorm of apex": ("apex", apex_layer_norm),
    "attention of flash-attn": ("flash-attn", flash_attention),
    "Linear of Transformer Engine": ("transformer-engine", engine_linear),
}


def close(torch: Any, found: Any, expected: Any, tolerance: float) -> None:
    """Raise AssertionError if two tensors differ by more than a tolerance."""
    difference = (found.detach().float() - expected.detach().float()).abs().max().item()
    if not difference <= tolerance:  # NaN, too
        raise AssertionError(f"the largest difference is {difference:g}, and {tolerance:g} is allowed")


def main(case: str) -> int:
    """Run one case, and print its result as a line of JSON; return the exit code."""
    _, run = CASES[case]
    torch: Any = import_module("torch")
    try:
        value = {"case": case, "compared": run(torch)}
    except Exception as error:  # of a library: its type and its first line are the result
        value = {"case": case, "error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    print(MARK + json.dumps(value), flush=True)
    return 1 if "error" in value else 0


def parse_kernel(text: str, case: str) -> tuple[bool, str]:
    """Return whether a case is right, and what was compared or the error. A text without its line is not right."""
    for line in text.splitlines():
        if line.startswith(MARK):
            try:
                value = json.loads(line[len(MARK) :])
            except ValueError:
                break
            if value.get("case") == case:
                return "error" not in value, str(value.get("error") or value.get("compared", ""))
    return False, "incomplete: it printed no result"
