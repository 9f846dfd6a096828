"""A manifest for tests that write a dump and look at other things."""

from comparison.schema.manifest import Manifest, Padding

MANIFEST = Manifest(
    engine="torch",
    versions={},
    model="tiny",
    pipeline="tiny",
    encoding="float32",
    device="cpu",
    padding=Padding.NONE,
    rows=(),
    steps=2,
)
