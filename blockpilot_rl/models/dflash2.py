"""The DFlash2 parts of a drafter: convolutions inside a block and a selector of candidates.

Positions of a block do not see the drafts at the other positions. Around attention and MLP of every
layer, short convolutions let a position read the ones before it. After the last layer, a selector
chooses among the most probable tokens of each position by how well they follow the token before.
"""

from __future__ import annotations

import torch
from torch import nn


class GroupedDynamicConv(nn.Module):
    """A pair of depthwise causal convolutions around one part of a layer.

    The kernel of a position is a learned base kernel plus a kernel that a projection of the input
    gives, one value for each tap and group of channels. Both convolutions use the same projection.
    """

    def __init__(self, hidden_size: int, kernel_size: int, group_size: int) -> None:
        """Build convolutions that change nothing."""
        super().__init__()
        self.kernel_size, self.group_size = kernel_size, group_size
        self.base_kernel = nn.Parameter(torch.zeros(2, kernel_size, hidden_size))
        groups = hidden_size // group_size
        self.kernel_projection = nn.Linear(hidden_size, 2 * kernel_size * groups, bias=False)
        with torch.no_grad():
            self.base_kernel[:, 0] = 1
            self.kernel_projection.weight.zero_()

    def prepare(
        self, hidden: torch.Tensor, offsets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Convolve the input of the part.

        Args:
            hidden: `[batch, n, hidden]`; the tokens of a block are consecutive.
            offsets: Position of each token in its block, `[n]` or `[batch, n]`.

        Returns:
            The convolved input, same shape, and the kernels for `finish`,
            `[batch, n, kernel, groups]`.
        """
        kernels = self.kernel_projection(hidden)
        kernels = kernels.view(*hidden.shape[:-1], 2, self.kernel_size, -1)
        return self._convolve(hidden, kernels[..., 0, :, :], 0, offsets), kernels[..., 1, :, :]

    def finish(
        self, hidden: torch.Tensor, kernels: torch.Tensor, offsets: torch.Tensor
    ) -> torch.Tensor:
        """Convolve the output of the part; arguments as in `prepare`."""
        return self._convolve(hidden, kernels, 1, offsets)

    def _convolve(
        self, hidden: torch.Tensor, kernels: torch.Tensor, side: int, offsets: torch.Tensor
    ) -> torch.Tensor:
        grouped = hidden.unflatten(-1, (-1, self.group_size))
        base = self.base_kernel[side].to(hidden.dtype).unflatten(-1, (-1, self.group_size))
        output = torch.zeros_like(grouped)
        for tap in range(self.kernel_size):
            values = grouped
            if tap:
                # A convolution does not reach into the block before.
                values = torch.roll(grouped, tap, dims=1) * (offsets >= tap)[..., None, None]
            output = output + base[tap] * values
            output = torch.addcmul(output, kernels[..., tap, :, None], values)
        return output.flatten(-2)


class CandidateSelector(nn.Module):
    """Scores the most probable tokens of a position by the token before it.

    The score of candidate `b` after token `a` is `logit(b) + <A[a] * H(hidden), B[b]>` with two
    tables `A` and `B` and a projection `H` of low rank.
    """

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        rank: int,
        top_k: int,
        draft_vocab_size: int | None = None,
    ) -> None:
        """Build a selector that prefers no pair of tokens.

        Args:
            hidden_size: Size of the drafter's states.
            vocab_size: Size of the target's vocabulary.
            rank: Rank of the scores of pairs.
            top_k: Number of candidates.
            draft_vocab_size: Size of a reduced draft vocabulary, an extension of this project.
        """
        super().__init__()
        self.top_k = top_k
        self.hidden_projection = nn.Linear(hidden_size, rank, bias=False)
        self.predecessor_codebook = nn.Parameter(torch.zeros(vocab_size, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(draft_vocab_size or vocab_size, rank))

    def read(
        self, logits: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute everything that does not depend on the token before a position.

        Args:
            logits: `[..., vocab]`.
            hidden: Final-norm states of the same positions, `[..., hidden]`.

        Returns:
            Logits and tokens of the candidates, `[..., top_k]` each, and the projected states,
            `[..., rank]`.
        """
        unary, candidates = logits.topk(self.top_k, dim=-1, sorted=False)
        return unary, candidates, self.hidden_projection(hidden)

    def score(
        self,
        unary: torch.Tensor,
        candidates: torch.Tensor,
        projected: torch.Tensor,
        before: torch.Tensor,
    ) -> torch.Tensor:
        """Score candidates and exclude all other tokens.

        Args:
            unary: See `read`.
            candidates: See `read`.
            projected: See `read`.
            before: Token of the target's vocabulary before each position, `[...]`.

        Returns:
            `[..., vocab]`, minus infinity except for the candidates.
        """
        pairs = self.pairs(candidates, projected, before)
        vocabulary = self.successor_codebook.shape[0]
        excluded = unary.new_full((*unary.shape[:-1], vocabulary), -torch.inf)
        return excluded.scatter(-1, candidates, unary + pairs)

    def pairs(
        self, candidates: torch.Tensor, projected: torch.Tensor, before: torch.Tensor
    ) -> torch.Tensor:
        """Score how well candidates follow the token before, `[..., top_k]`.

        Args:
            candidates: See `read`.
            projected: See `read`.
            before: See `score`.
        """
        context = self.predecessor_codebook[before] * projected
        return torch.einsum("...r,...kr->...k", context, self.successor_codebook[candidates])
