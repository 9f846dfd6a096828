"""A diagnosis in two passes, where one full dump would be too large: coarse, then fine.

The coarse pass holds what layers and the modules outside of them give, so that each layer is judged
as a whole. The fine pass holds that and every tensor of the layers that are suspect then; its dump
alone gives the verdict, which so covers both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from comparison.schema.diagnosis import Diagnosis, Guilty, Judgement
from diagnosis.capture_plan import CapturePlan, FinePass, suspects_of
from diagnosis.finding import Finding
from diagnosis.sketch_pass import SketchedSuspects
from diagnosis.uncaptured import with_uncaptured

DEFAULT_MAX_BYTES = 8 * 10**9
# Whole layers of clean dumps were at most 1.62 times rounding in float32, and faulty ones thinned
# a fault of one of their modules out to as little as 31 times.
_SUSPECT = 3.0
_LISTED = 8

Side = TypeVar("Side")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes(Generic[Side]):
    """How a candidate is captured and judged.

    Attributes:
        capture: dumps the tensors that fit the globs; is given the name of the pass, too.
        find: diagnoses such a dump; at least so many modules have to be checked for agreement.
        plan: the tensors of a full dump.
        max_bytes: greatest size of a dump.
        tell: is told what is to be done next.
        engine: the candidate's.
        sketched: runs both sides for sketches and tells what is suspect in them; None for going
            without.
    """

    capture: Callable[[str, tuple[str, ...]], Side]
    find: Callable[[Side, int], Finding]
    plan: CapturePlan
    max_bytes: int
    tell: Callable[[str], None]
    engine: str
    sketched: Callable[[], SketchedSuspects] | None = None

    def run(self) -> Finding:
        """Judge the layers, and then look into those that are suspect."""
        if self.sketched is not None:
            return self._from_sketches(self.sketched)
        plan, least = self.plan, self.plan.coarse_modules // 2
        self.tell(self._too_large())
        coarse = self._judged("coarse", plan.coarse(), least)
        found = coarse.diagnosis
        suspects = self._suspects(found)
        if not suspects:
            return replace(coarse, diagnosis=self._only_coarse(found))
        fine = plan.fine(suspects, max_bytes=self.max_bytes)
        self.tell(self._before_fine(fine))
        final = self._judged("fine", fine.globs, least)
        return replace(final, diagnosis=self._joined(found, final.diagnosis, fine))

    def _from_sketches(self, sketched: Callable[[], SketchedSuspects]) -> Finding:
        """Capture what sketches point at, and then what the replay of that finds besides."""
        plan, least = self.plan, self.plan.coarse_modules // 2
        self.tell(
            f"sketches first: a few KB for each of the tensors that take {_size(plan.total_bytes)}"
        )
        seen = sketched()
        fine = plan.fine(seen.modules, max_bytes=self.max_bytes)
        said = f"{seen.tensors} tensors were estimated from {_size(seen.size_bytes)} of sketches"
        self.tell(f"{said}; {self._before_fine(fine) if seen.modules else 'nothing is suspect'}")
        name, globs = ("fine", fine.globs) if seen.modules else ("coarse", plan.coarse())
        found = self._judged(name, globs, least)
        left = self._not_in(fine, self._suspects(found.diagnosis))
        if left:
            fine = plan.fine([*left, *seen.modules], max_bytes=self.max_bytes)
            self.tell(self._before_fine(fine))
            found = self._judged("finer", fine.globs, least)
        return replace(found, diagnosis=self._after_sketches(found.diagnosis, said, fine))

    def _judged(self, name: str, globs: tuple[str, ...], least: int) -> Finding:
        found = self.find(self.capture(name, globs), least)
        return replace(found, diagnosis=with_uncaptured(found.diagnosis, globs))

    def _suspects(self, found: Diagnosis) -> tuple[str, ...]:
        return suspects_of(
            [self._module_in_plan(guilty) for guilty in found.guilty],
            [(item.tensor, item.excess) for item in found.growth],
            limit=_SUSPECT,
        )

    def _not_in(self, fine: FinePass, modules: Iterable[str]) -> tuple[str, ...]:
        """Leave out what was captured whole, and what did not fit."""
        layers = [(module, self.plan.layer_of(module)) for module in modules]
        return tuple(
            module
            for module, layer in layers
            if (not fine.outside if layer is None else layer not in (*fine.layers, *fine.left))
        )

    def _after_sketches(self, found: Diagnosis, said: str, fine: FinePass) -> Diagnosis:
        captured = f"all of {_whole(fine)}" if fine.layers or fine.outside else "no layer whole"
        sentence = (
            f"{found.sentence} This rests on sketches of all tensors, and on a dump of what layers "
            f"give and {captured}."
        )
        return replace(found, sentence=sentence, notes=(*found.notes, said, *_left(fine)))

    def _module_in_plan(self, guilty: Guilty) -> str:
        """Return the name, of those of both sides, that the plan knows a layer by."""
        theirs = guilty.candidate_module
        if theirs is not None and self.plan.layer_of(guilty.module) is None:
            return theirs if self.plan.layer_of(theirs) is not None else guilty.module
        return guilty.module

    def _too_large(self) -> str:
        layers = len(self.plan.layers)
        return (
            f"a full dump would hold {_size(self.plan.total_bytes)}, more than --max-bytes "
            f"{_size(self.max_bytes)}: the coarse pass captures what {layers} layers and "
            f"{self.plan.coarse_modules - layers} modules outside of them give "
            f"({_size(self.plan.coarse_bytes)})"
        )

    def _before_fine(self, fine: FinePass) -> str:
        text = f"the fine pass captures {_whole(fine)}"
        if self.engine == "max":
            text += "; on MAX that is another graph, which takes minutes to build if not cached"
        return text

    def _only_coarse(self, found: Diagnosis) -> Diagnosis:
        notes = (self._too_large(), "nothing was suspect, so that there was no fine pass")
        if found.verdict is Judgement.AGREE:
            sentence = f"{found.sentence} This rests on a coarse pass, by what layers give."
            return replace(found, sentence=sentence, notes=(*found.notes, *notes))
        return replace(found, notes=(*found.notes, *notes))

    def _joined(self, coarse: Diagnosis, fine: Diagnosis, done: FinePass) -> Diagnosis:
        sentence = (
            f"{fine.sentence} This rests on a coarse pass, by what layers give, and a fine one, "
            f"which captured {_whole(done)}."
        )
        notes = [self._too_large(), *_left(done), *_cleared(coarse, fine)]
        return replace(fine, sentence=sentence, notes=(*fine.notes, *notes))


def _whole(fine: FinePass) -> str:
    layers = ", ".join(map(str, fine.layers[:_LISTED]))
    if len(fine.layers) > _LISTED:
        layers += f" and {len(fine.layers) - _LISTED} more"
    outside = "the modules outside of layers" if fine.outside else ""
    return " and ".join(filter(None, [layers, outside]))


def _left(fine: FinePass) -> Iterator[str]:
    if fine.left:
        yield (
            f"{len(fine.left)} more layers are suspect and did not fit --max-bytes; they were "
            f"judged as a whole, from {fine.left[0]} on"
        )


def _cleared(coarse: Diagnosis, fine: Diagnosis) -> Iterator[str]:
    """Say what the coarse pass blamed and the fine pass does not."""
    wrong = [guilty.module for guilty in fine.guilty]
    for guilty in coarse.guilty:
        inside = any(f"{name}.".startswith(f"{guilty.module}.") for name in wrong)
        if not inside and not wrong:
            yield f"the coarse pass blamed {guilty.module}, and the fine pass clears it"


def _size(size_bytes: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes} bytes"
