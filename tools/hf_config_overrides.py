"""The documented home of `create_layer_overrides`; see `test_common.config_overrides`."""

from test_common.config_overrides import create_layer_overrides

__all__ = ["create_layer_overrides"]
