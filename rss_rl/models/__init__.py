"""The networks of theta_s: RSS-masked self-attention, sentence encoders and task heads."""
