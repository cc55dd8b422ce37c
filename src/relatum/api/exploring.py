"""`explore`: trains on a folder of photos and writes one page, with defaults for everything."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from relatum import config
from relatum.api.pretraining import pretrain
from relatum.api.runs import StrPath
from relatum.errors import InputError, Interrupted
from relatum.runs.folder import RunFolder
from relatum.system.files import expand_user
from relatum.system.outputs import mark_output
from relatum.system.progress import Display
from relatum.system.text import counted
from relatum.system.torch_state import usual_torch_state

_MINUTES = 5.0


@usual_torch_state
def explore(
    folder: StrPath,
    *,
    minutes: float | None = None,
    out: StrPath | None = None,
    seed: int = 1,
    device: str = "auto",
    quiet: bool = False,
) -> Path:
    """Train on a folder of photos within a budget, and write one page: map, albums, near-duplicates, outliers, search.

    A run that is already in `out` is used as it is (or resumed if it was interrupted), and only new photos are
    embedded. Image files are only read.

    Args:
        folder: folder of images.
        minutes: time for training, 5 by default; fixed when a run starts. Embedding and the page
            take about a minute more for a few thousand photos.
        out: run folder; `runs/NAME` by default. The page is `explore.html` in it.
        seed: random seed.
        device: `auto`, `cpu`, `cuda` or `mps`.
        quiet: print nothing.

    Returns:
        The path of the page.
    """
    seed = config.seed(seed)
    source = expand_user(folder)
    if not os.fspath(folder) or not source.is_dir():
        from relatum.data import find_folder

        find_folder(os.fspath(folder))  # an error that suggests the nearest name
        raise InputError(f"{source} is a file, not a folder of images.")  # a tar file
    run = RunFolder(Path(out) if out is not None else Path("runs") / source.resolve().name)
    display = Display(quiet=quiet)
    if run.finished():
        with contextlib.suppress(InputError), run.lock():  # removes the temporary files of a process that was killed
            pass
        display.print(f"{run.path} is trained already and is used as it is; --out NEW_RUN trains another one.")
        with contextlib.suppress(InputError):  # a damaged recipe: the weights are enough
            trained_on = run.read_recipe().data.name
            if Path(trained_on) != source.resolve():
                display.warn(f"it was trained on {trained_on}, not on {source}.")
    else:
        try:
            if run.exists():
                if minutes is not None:
                    display.warn(f"{run.path} was interrupted and is resumed with the time budget it started with.")
                pretrain(source, out=run.path, resume=True, quiet=quiet)
            else:
                budget = _MINUTES if minutes is None else minutes
                pretrain(source, out=run.path, minutes=budget, seed=seed, device=device, quiet=quiet)
        except InputError as error:
            if "NEW_RUN" in str(error):  # photos were added or deleted since it was interrupted
                error.args = (
                    f"{error.args[0]}\nOr train again within a time budget: relatum explore {source} --out NEW_RUN",
                )
            raise
        except Interrupted as stopped:  # `explore` has no --resume
            stopped.args = (stopped.args[0].replace("--resume continues", "run the same command to resume"),)
            raise
    mark_output(run.path)  # the page and the index are not photos, even if the recipe is lost
    from relatum.collection.indexing import build_index, detail_reader, link_test, load_thumbnails
    from relatum.collection.overview import overview
    from relatum.report.collection_page import write_collection_page

    index = build_index(run.path, source, device=device, progress=not quiet)
    display.print(f"index     {len(index):,} images; computing maps, albums, near-duplicates and outliers")
    files = index.files.tolist()
    shown = overview(index, seed=seed, detail=detail_reader(source, files), is_link=link_test(source, files))
    thumbnails = load_thumbnails(source, shown.files)
    page = write_collection_page(run.explore_page, source.resolve().name, shown, thumbnails)
    display.print(
        f"result    {counted(len(shown.clusters), 'album')}, {counted(len(shown.duplicates), 'group')} of "
        f"near-duplicates, {counted(len(shown.skipped), 'unreadable file')}; open this page in a browser:"
    )
    return page
