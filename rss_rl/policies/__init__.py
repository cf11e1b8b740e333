"""The networks of theta_r: selection policies over the tokens of a sentence."""
