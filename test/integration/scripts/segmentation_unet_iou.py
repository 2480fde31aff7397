"""A small U-Net with interpolated skip connections and a metric class for the IoU of each class."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F

import koila

torch.manual_seed(0)
CLASSES, IGNORE = 3, 255


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1 = nn.Conv2d(1, width, 3, padding=1)
        self.down2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.up1 = nn.Conv2d(3 * width, width, 3, padding=1)
        self.out = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        skip = F.relu(self.down1(x))
        deep = F.relu(self.down2(F.max_pool2d(skip, 2)))
        deep = F.interpolate(deep, size=skip.shape[-2:], mode="bilinear", align_corners=False)
        return self.out(F.relu(self.up1(torch.cat([deep, skip], dim=1))))


class IoU:
    def __init__(self):
        self.intersection, self.union = torch.zeros(CLASSES), torch.zeros(CLASSES)

    def update(self, predicted, target):
        for c in range(CLASSES):
            p, t = (predicted == c) & (target != IGNORE), target == c
            self.intersection[c] += (p & t).sum()
            self.union[c] += (p | t).sum()

    def compute(self):
        return self.intersection / self.union.clamp(min=1)


noise = torch.randn(352, 1, 20, 20) * torch.linspace(2, 6, 352).view(-1, 1, 1, 1)
images = F.avg_pool2d(noise, 5, stride=1)
masks = 1 + (images[:, 0] > 0.4).long() - (images[:, 0] < -0.4).long()
masks[:, 0] = IGNORE
model, losses, train_iou, test_iou = UNet(), [], IoU(), IoU()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(3):
    image, mask = koila.lazy(images[step * 96 :][:96], masks[step * 96 :][:96], batch=0)
    logits = model(image)
    loss = F.cross_entropy(logits, mask, ignore_index=IGNORE)
    optimizer.zero_grad()
    loss.backward()
    train_iou.update(logits.argmax(1), mask)
    optimizer.step()
    losses.append(loss.item())
    print(f"[{step}] loss={losses[-1]:.4f} mIoU={train_iou.compute().mean():.4f}")
with torch.inference_mode():
    image, mask = koila.lazy(images[288:], masks[288:], batch=0)
    logits = model.eval()(image)
    test_iou.update(logits.argmax(1), mask)
    uncertainty = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean(dim=(1, 2)).numpy()
results = {
    "losses": losses,
    "train_iou": train_iou.compute(),
    "test_iou": test_iou.compute(),
    "uncertainty": uncertainty,
    "weights": model.state_dict(),
}
