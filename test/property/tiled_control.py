"""Wrong tilers, which tiled_operators.py must notice."""

import dataclasses
import pathlib
import tempfile

import torch

from evaluate import in_child
from koila_opt import Refused
from operator_programs import PROBES, batch_dim
from tiled_check import TIMEOUT, Check
from tiled_equal import Seen, call, compare


@dataclasses.dataclass
class Noticed:
    """Whether koila names a barrier or combines tiles, and whether wrong
    tilers are seen to differ."""

    marked: bool
    naive: bool = False
    reverse: bool = False


def slices(program, inputs, batch, tile):
    for start in range(0, batch, tile):
        part = []
        for (_, tensor), data in zip(program.arguments, inputs, strict=True):
            for dim, size in enumerate(tensor.dims):
                if not isinstance(size, int):
                    data = data.narrow(
                        dim, start * size.factor, min(tile, batch - start) * size.factor
                    )
            part.append(data.clone())
        yield part


def tile_wrongly(program, module, batch, tile, reverse):
    """What a tiler makes that knows nothing of batches."""
    probes = [call(module, program.inputs(size, 1)).results for size in PROBES]
    inputs = program.inputs(batch, 1)
    tiles = [call(module, part) for part in slices(program, inputs, batch, tile)]
    for seen in tiles:
        if seen.error:
            return seen
    order = tiles[::-1] if reverse else tiles
    joined = []
    for index, pair in enumerate(zip(*probes, strict=False)):
        found = batch_dim(*pair)
        parts = [seen.results[index] for seen in order]
        try:
            joined.append(torch.cat(parts, found[0]) if found else tiles[-1].results[index])
        except RuntimeError as error:
            return Seen(error=str(error))
    return Seen(tuple(joined))


def control(koila, program, seed, batch=7, tile=2):
    def run():
        with tempfile.TemporaryDirectory() as name, torch.no_grad():
            mine = Check(koila, None, program, seed, pathlib.Path(name))
            mine.load()
            try:
                mine.compile(f"tile={tile}", None)
            except Refused:
                return None
            seen = Noticed(any("Reason=" in text for text in mine.remarks))
            untiled = call(mine.module, program.inputs(batch, 1))
            reference = mine.see_reference(program.inputs(batch, 1))
            for kind in ("naive", "reverse"):
                wrong = tile_wrongly(program, mine.module, batch, tile, kind == "reverse")
                # Only results: it writes to slices.
                wrong.arguments = untiled.arguments
                setattr(
                    seen, kind, bool(compare(mine.names, wrong, untiled, reference, program.double))
                )
            return seen

    kind, answer = in_child(run, TIMEOUT)
    return answer if kind == "value" else None
