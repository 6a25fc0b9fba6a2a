"""Plain convolutional networks for small images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from engram import check
from engram.models.layers import Channels, GlobalMean, activation_layer, image_net, whole


@dataclass(frozen=True)
class SmallCNN:
    """Two 3 x 3 convolutions, each halved by max-pooling, and one linear layer. Trains on digits in seconds."""

    channels: int = 1
    size: int = 8
    classes: int = 10
    width: int = 16
    normalise: Channels | None = None

    def __post_init__(self) -> None:
        whole(channels=self.channels, classes=self.classes, width=self.width)
        check.at_least("size", self.size, 4, "two poolings leave nothing of a smaller image")

    def __call__(self) -> nn.Module:
        wide, side = 2 * self.width, self.size // 4
        return image_net(
            self.normalise,
            conv1=nn.Conv2d(self.channels, self.width, 3, padding=1), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(self.width, wide, 3, padding=1), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2),
            flat=nn.Flatten(), linear=nn.Linear(wide * side * side, self.classes),
        )  # fmt: skip


@dataclass(frozen=True)
class LabelOnlyCNN:
    """The image network of Choquette-Choo, Tramer, Carlini, Papernot: Label-Only Membership Inference, 2021.

    Two stages of `depth` pairs of 3 x 3 convolutions (the first of each pair padded, the second not), 32 and then 64
    wide, each stage halved by max-pooling; dropout; 512 units; dropout; logits.
    """

    channels: int
    size: int
    classes: int
    depth: int = 1
    dropout: float = 0.0
    normalise: Channels | None = None

    def __post_init__(self) -> None:
        whole(channels=self.channels, size=self.size, classes=self.classes, depth=self.depth)
        check.fraction("dropout", self.dropout, zero=True)
        check.at_least("size", self.size, 6 * self.depth + 4, f"depth {self.depth} leaves nothing of a smaller image")

    def __call__(self) -> nn.Module:
        side = ((self.size - 2 * self.depth) // 2 - 2 * self.depth) // 2
        return image_net(
            self.normalise,
            stage1=_pairs(self.channels, 32, self.depth), pool1=nn.MaxPool2d(2),
            stage2=_pairs(32, 64, self.depth), pool2=nn.MaxPool2d(2),
            drop1=nn.Dropout(self.dropout), flat=nn.Flatten(),
            fc1=nn.Linear(64 * side * side, 512), relu=nn.ReLU(), drop2=nn.Dropout(self.dropout),
            fc2=nn.Linear(512, self.classes),
        )  # fmt: skip


def _pairs(n_in: int, n_out: int, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for pair in range(depth):
        layers += [nn.Conv2d(n_out if pair else n_in, n_out, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(n_out, n_out, 3), nn.ReLU()]
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class LeNet:
    """The network of Zhu, Liu, Han: Deep Leakage from Gradients, 2019: three 5 x 5 convolutions of 12 channels, sigmoid.

    Every weight and bias is drawn evenly from -0.5 to 0.5, without which its gradients are too small to match.
    """

    channels: int = 3
    size: int = 32
    classes: int = 10
    spread: float = 0.5

    def __post_init__(self) -> None:
        whole(channels=self.channels, classes=self.classes)
        check.at_least("size", self.size, 4)
        check.positive("spread", self.spread)

    def __call__(self) -> nn.Module:
        side = -(-self.size // 4)
        net = nn.Sequential(
            nn.Conv2d(self.channels, 12, 5, 2, 2), nn.Sigmoid(),
            nn.Conv2d(12, 12, 5, 2, 2), nn.Sigmoid(),
            nn.Conv2d(12, 12, 5, 1, 2), nn.Sigmoid(),
            nn.Flatten(), nn.Linear(12 * side * side, self.classes),
        )  # fmt: skip
        for p in net.parameters():
            nn.init.uniform_(p, -self.spread, self.spread)
        return net


@dataclass(frozen=True)
class ReleasedCNN:
    """The CIFAR-10 network of Balle, Cherubin, Hayes: Reconstructing Training Data with Informed Adversaries, 2022.

    Table V: two 4 x 4 convolutions and a layer of ten units below the answers.

    >>> sum(p.numel() for p in ReleasedCNN()().parameters())
    55208
    """

    channels: int = 3
    size: int = 32
    classes: int = 10
    activation: str = "elu"

    def __post_init__(self) -> None:
        whole(channels=self.channels, classes=self.classes)
        check.at_least("size", self.size, 10)
        activation_layer(self.activation)

    def __call__(self) -> nn.Module:
        side = (self.size - 4) // 2 + 1 - 3
        return nn.Sequential(
            nn.Conv2d(self.channels, 16, 4, 2), activation_layer(self.activation),
            nn.Conv2d(16, 32, 4), activation_layer(self.activation),
            nn.Flatten(), nn.Linear(32 * side * side, 10), activation_layer(self.activation), nn.Linear(10, self.classes),
        )  # fmt: skip


@dataclass(frozen=True)
class VGG16BN:
    """Configuration D of Simonyan and Zisserman, Very Deep Convolutional Networks, 2014, with batch normalisation.

    Differs from the paper: for 32-pixel images, so one linear layer follows the convolutions instead of three.
    """

    classes: int = 10
    channels: int = 3
    normalise: Channels | None = None

    def __post_init__(self) -> None:
        whole(classes=self.classes, channels=self.channels)

    def __call__(self) -> nn.Module:
        widths = [[64, 64], [128, 128], [256, 256, 256], [512, 512, 512], [512, 512, 512]]
        layers: list[nn.Module] = []
        n_in = self.channels
        for stage in widths:
            for n_out in stage:
                layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU()]
                n_in = n_out
            layers.append(nn.MaxPool2d(2))
        return image_net(
            self.normalise, features=nn.Sequential(*layers), pool=GlobalMean(), linear=nn.Linear(n_in, self.classes)
        )
