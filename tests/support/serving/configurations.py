"""Configurations nested too deeply."""

ANY = "[type.googleapis.com/google.protobuf.Any] { "


NESTED = f"custom_model_config {{ {ANY * 2000} {'} ' * 2001}"
