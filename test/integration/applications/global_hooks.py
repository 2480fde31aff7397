"""A monitor of activations, a hook for all modules of PyTorch, and a hook that clamps."""

# points: 4
# catches: silent, wrong, keeps

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

BUDGET = 1 << 20


def application(koila, app):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 4)).eval()
    x = torch.randn(1024, 32)
    seen, answers = {}, []

    def watch(module, inputs, output):
        seen[type(module).__name__] = output.abs().max().item()

    def clamp(module, inputs, output):
        return output.clamp(-0.2, 0.2) if isinstance(module, nn.Linear) else None

    def serve(compiled):
        with torch.no_grad(), app.within(BUDGET):
            answers.append(compiled(x))

    with register_module_forward_hook(watch):
        compiled = koila.compile(model, x, budget=BUDGET)
        seen.clear()
        serve(compiled)
    app.check(
        set(seen) >= {"Linear", "GELU"} or app.warnings,
        f"a hook that was there before saw {sorted(seen)}, and nobody said so",
    )
    compiled = koila.compile(model, x, budget=BUDGET)
    serve(compiled)
    before = len(app.warnings)
    seen.clear()
    with register_module_forward_hook(watch):
        serve(compiled)
    app.check(
        set(seen) >= {"Linear", "GELU"} or len(app.warnings) > before,
        f"a hook that came later saw {sorted(seen)}, and nobody said so",
    )
    with register_module_forward_hook(clamp), torch.no_grad():
        before = len(app.warnings)
        answer, wanted = compiled(x), model(x)
        app.check(
            torch.allclose(answer, wanted, atol=1e-5) or len(app.warnings) > before,
            "a hook that changes results is left out, and nobody said so",
        )
        del answer, wanted
    serve(compiled)
    return {"answers": answers}
