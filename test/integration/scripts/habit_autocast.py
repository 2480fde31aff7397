"""Mixed precision on the CPU: autocast to bfloat16 with a gradient scaler and clipping."""

# koila: tiles
import torch
import torch.nn as nn

import koila

torch.manual_seed(4)
results = {"losses": [], "scales": [], "norms": []}

# Stripes, horizontal or vertical, of three widths.
labels = torch.randint(6, (288,))
wave = (torch.arange(16.0) + 4 * torch.rand(288, 1)) / (0.6 + (labels // 2)[:, None])
stripes = (wave.sin() * (1 + 2 * torch.rand(288, 1)))[:, None, :].expand(-1, 16, -1)
stripes = torch.where((labels % 2 == 0)[:, None, None], stripes, stripes.transpose(1, 2))
images = stripes[:, None] + 0.2 * torch.randn(288, 1, 16, 16)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 6),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for start in range(0, 192, 64):
    x, y = images[start : start + 64], labels[start : start + 64]
    x, y = koila.lazy(x, y, batch=0)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
        loss = criterion(logits, y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    results["losses"].append(loss.item())
    results["norms"].append(float(norm))
    results["scales"].append(scaler.get_scale())
    print(f"loss {loss.item():.3f}, norm {norm.item():.3f}, scale {scaler.get_scale()}")

model.eval()
with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
    x, y = koila.lazy(images[192:], labels[192:], batch=0)
    logits = model(x)
    results["dtype"] = str(logits.dtype)
    results["test loss"] = criterion(logits.float(), y).item()
    results["probabilities"] = logits.float().softmax(1).numpy()
results["weights"] = model.state_dict()
