"""The kind of a file by its name and first bytes: photographs that need another tool, images without extension."""

from __future__ import annotations

from pathlib import Path

# Folders that devices and systems fill with thumbnails, deleted files or metadata.
NOT_PHOTOS = frozenset({"@eaDir", "@Recycle", "@Recently-Snapshot", "#recycle", "#snapshot", "__MACOSX", "lost+found"})
_HEIF = "HEIC and HEIF need a plug-in: pip install pillow-heif"
_RAW = "a camera's RAW file; export it as JPEG first"
_SVG = "a vector drawing without pixels; export it as PNG first"
_JXL = "JPEG XL, which Pillow does not read; export it as JPEG first"
_ADVICE = {
    ".jxl": _JXL,
    **dict.fromkeys((".heic", ".heif", ".hif"), _HEIF),
    **dict.fromkeys((".svg", ".svgz"), _SVG),
    **dict.fromkeys(
        (".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dng", ".erf", ".kdc", ".mrw", ".nef", ".nrw", ".orf", ".pef"), _RAW
    ),
    **dict.fromkeys(
        (".dcr", ".gpr", ".iiq", ".mef", ".mos", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"), _RAW
    ),
}
# The first bytes of common formats; RIFF and ISO containers name their kind a few bytes later.
_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"BM", b"II*\x00", b"MM\x00*")
_HEAD = 16
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"})


def why_not_read(name: str) -> str | None:
    """Why a photograph of this name is skipped, and what to do; None for files that are not photographs."""
    return _ADVICE.get(Path(name).suffix.lower())


def what_helps(path: Path) -> str | None:
    """What to do about a file that Pillow cannot read, by its content or its name: phones name HEIC files `.jpg`."""
    return why_not_read(f"image{kind_by_content(path)}") or why_not_read(path.name)


def kind_by_content(path: Path) -> str | None:
    """The extension that a file without one could have: `.heic`, or `.image` for a common format; None if no image."""
    head = _head(path)
    if head[4:8] == b"ftyp" and head[8:12] in _HEIF_BRANDS:
        return ".heic"
    return ".image" if _is_common(head) else None


def _head(path: Path) -> bytes:
    try:
        if not path.is_file():  # opening a pipe would block
            return b""
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def _is_common(head: bytes) -> bool:
    if head.startswith(b"BM"):
        return len(head) == _HEAD and head[6:10] == b"\0\0\0\0"  # reserved bytes: "BM" alone also starts words
    return head.startswith(_STARTS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")
