"""DiSAN: directional self-attention among all tokens, then source2token.

Source: Shen et al., DiSAN (AAAI 2018), section 4.
"""

from __future__ import annotations

from rss_rl.components import Options
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup
from rss_rl.models.encoders.pooled import source2token
from rss_rl.models.encoders.resan import ReSANEncoder, disa


def _build(setup: EncoderSetup, options: Options) -> ReSANEncoder:
    context = disa(setup, options)
    return ReSANEncoder(context, source2token(setup, context.output_size), every=True)


DISAN = EncoderComponent(
    name="disan",
    help="Feature-wise attention of each selected token to those before and after it.",
    build=_build,
    context=disa,
    capabilities=frozenset({"gates", "kept_only", "kernels", "feature_attention"}),
    source="Shen et al., DiSAN, AAAI 2018",
)
