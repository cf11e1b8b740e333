"""A policy of one's own: logistic regression on the word vector, for each role."""

from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Component, Options


class LogisticOptions(Options):
    """Of the regression."""

    scale: float = Field(default=1.0, gt=0, description="What logits are multiplied by.")


class LogisticPolicy(nn.Module):
    """P(select token i in a role) = sigmoid(scale * (w . x_i + b))."""

    def __init__(self, inputs: int, scale: float) -> None:
        super().__init__()
        self.score = nn.Linear(inputs, 2)
        self._scale = scale

    def logits(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """[B, N, E] to [B, 2, N]; all else follows from them."""
        return self._scale * self.score(embedded).transpose(1, 2)


LOGISTIC = Component(
    kind="policy",
    name="logistic",
    help="Logistic regression on the word vector, for each role.",
    build=lambda setup, options: LogisticPolicy(setup.inputs, options.scale),
    options=LogisticOptions,
    capabilities=frozenset({"learns", "logits", "share"}),
)
