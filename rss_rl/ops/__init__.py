"""The mathematics as functions of tensors: no state, configuration, devices or logging."""
