"""A vision transformer (Dosovitskiy et al. 2021) in timm's layout, for small images.

Parameters are called what timm calls them, so that its checkpoints of the same shape load as they
are, and this package's load there.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import AcclimateError

__all__ = ["VisionTransformer"]

_EPSILON = 1e-6


class _Attention(nn.Module):
    """Every token attends to every other one, in several subspaces at once."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        apart = self.qkv(x).unflatten(2, (3, self.heads, -1))
        query, key, value = apart.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return out


class _Block(nn.Module):
    """Attention, then an MLP, each added to its input and fed a normalised copy of it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.attn = _Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        fc1, fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mlp = nn.Sequential(OrderedDict(fc1=fc1, act=nn.GELU(), fc2=fc2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class VisionTransformer(nn.Module):
    """Pre-norm blocks on patches and a class token, whose last state the classifier sees.

    Made for square images of ``size`` px; for others, of any sides that ``patch`` divides, the
    learned positions are interpolated.

    >>> model = VisionTransformer(size=32, patch=4, width=192, depth=6, heads=3)
    >>> sum(p.numel() for p in model.parameters())
    2693578
    >>> model(torch.zeros(2, 3, 16, 24)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        size: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        classes: int = 10,
        channels: int = 3,
    ) -> None:
        super().__init__()
        if size % patch or width % heads:
            raise AcclimateError(
                f"expected a size that the patch divides and a width that the heads do, got "
                f"size {size}, patch {patch}, width {width}, heads {heads}"
            )
        self.patch, self.side = patch, size // patch
        patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.patch_embed = nn.Sequential(OrderedDict(proj=patches))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + self.side**2, width))
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.head = nn.Linear(width, classes)
        nn.init.normal_(self.cls_token, std=1e-6)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                # Not timm's 0.02, which is for wide networks: the blocks of a narrow one would add
                # next to nothing, and the class tokens of all images be alike.
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def features(self, x: Tensor) -> Tensor:
        """What the classifier sees: the class token's last state."""
        if x.shape[2] % self.patch or x.shape[3] % self.patch:
            raise AcclimateError(
                f"expected images whose sides {self.patch} divides, got {x.shape[2]}×{x.shape[3]}"
            )
        grid = self.patch_embed(x)
        tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), grid.flatten(2).mT], dim=1)
        out: Tensor = self.norm(self.blocks(tokens + self._positions(grid.shape[2:])))[:, 0]
        return out

    def _positions(self, shape: torch.Size) -> Tensor:
        """Those of the class token and of a grid."""
        if tuple(shape) == (self.side, self.side):
            return self.pos_embed
        own, grid = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        grid = grid.mT.unflatten(2, (self.side, self.side))
        # Antialiased, as timm does it: small crops see all the positions that they cover.
        moved = F.interpolate(grid, size=list(shape), mode="bicubic", antialias=True)
        return torch.cat([own, moved.flatten(2).mT], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits
