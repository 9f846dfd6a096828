"""What several ranks captured, added up."""

from comparison.schema.manifest import CaptureCertificate, Skip
from test_common.vllm_worker import joined_certificate


def certificate(saved: int, *skipped: str) -> CaptureCertificate:
    skips = tuple(Skip(name=name, reason="not called") for name in skipped)
    return CaptureCertificate(registered=4, fired=3, saved=saved, skipped=skips)


def test_one_rank_keeps_its_own() -> None:
    assert joined_certificate([certificate(7, "a")]) == certificate(7, "a")
    assert joined_certificate([None, None]) is None


def test_several_ranks_are_summed_and_their_skips_told_apart() -> None:
    joined = joined_certificate([certificate(7, "lm_head"), certificate(6, "lm_head", "norm")])
    assert joined is not None
    assert (joined.registered, joined.fired, joined.saved) == (8, 6, 13)
    assert [skip.name for skip in joined.skipped] == [
        "rank0/lm_head",
        "rank1/lm_head",
        "rank1/norm",
    ]
