"""Read the section `uploads:`: which files are taken from chats, and what kind a file is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from agent.messages import Attachment
from agent.near_misses import suggest
from agent.setting import setting
from bot.config.document import Document
from catalogue import N_, _, list_items

KINDS = {  # name → what people call one, and the endings of its names
    "image": (N_("a picture"), "png,jpg,jpeg,gif,webp,bmp,tif,tiff,heic,heif,avif,svg,ico"),
    "audio": (N_("a sound or voice message"), "mp3,wav,ogg,oga,opus,m4a,flac,aac,amr,wma"),
    "video": (N_("a video"), "mp4,mov,mkv,webm,avi,m4v,mpg,mpeg,3gp,wmv"),
    "document": (N_("a document"), "pdf,doc,docx,odt,rtf,ppt,pptx,odp,epub,pages,key"),
    "table": (N_("a table"), "csv,tsv,xls,xlsx,xlsm,ods,parquet,numbers"),
    "text": (N_("a text"), "txt,md,markdown,rst,log,json,jsonl,yaml,yml,toml,xml,html,htm,ini,cfg,conf,srt,vtt,tex"),
    "code": (
        N_("a program"),
        "py,js,mjs,ts,tsx,jsx,go,rs,java,kt,c,h,cc,cpp,hpp,cs,rb,php,swift,scala,sql,r,lua,ipynb",
    ),
    "script": (N_("a script"), "sh,bash,zsh,ps1,bat,cmd,vbs"),
    "archive": (N_("an archive"), "zip,tar,gz,tgz,bz2,xz,zst,7z,rar,jar,whl"),
}
OTHER = "other"
_BY_ENDING = {ending: kind for kind, (_words, endings) in KINDS.items() for ending in endings.split(",")}
_BY_TYPE = {"image": "image", "audio": "audio", "video": "video"}  # of a MIME type, by its first half


@dataclass(frozen=True, slots=True)
class UploadsConfig:
    """Which files are taken from chats; others are refused in words."""

    kinds: tuple[str, ...] = setting(
        (), f"kinds of files that are taken: {', '.join([*KINDS, OTHER])}, or endings such as `.dwg`; empty: all"
    )
    max_mb: int = setting(100, "largest file that is taken", ge=0)

    def refusal(self, file: Attachment) -> str | None:
        """Return why a file is not taken, None if it is."""
        found = kinds_of(file)
        ending = PurePosixPath(file.name.lower()).suffix
        if not self.kinds or ending in self.kinds or found <= {*self.kinds}:
            return None
        refused = sorted(found - {*self.kinds})
        what = list_items(_(KINDS[kind][0]) if kind in KINDS else _("a file of another kind") for kind in refused)
        taken = list_items(_(KINDS[kind][0]) if kind in KINDS else kind for kind in self.kinds if kind != OTHER)
        return _("is {what}; here I take {kinds}", what=what, kinds=taken or _("no files"))


def kinds_of(file: Attachment) -> set[str]:
    """Return the kinds that a file claims to be: by the ending of its name, and by the type that the platform says."""
    name = PurePosixPath(file.name.lower())
    by_name = {_BY_ENDING[ending] for each in name.suffixes[-1:] if (ending := each[1:]) in _BY_ENDING}
    by_type = {kind for half, kind in _BY_TYPE.items() if file.mime.startswith(f"{half}/") or file.kind == half}
    return by_name | by_type or {OTHER}


def check_uploads(document: Document, sections: dict[str, Any]) -> None:
    """The kinds are known. What had its place below `limits` before is named."""
    limits, uploads = sections.get("limits"), sections.get("uploads")
    if isinstance(limits, dict) and "upload_mb" in limits:
        document.fault(
            ("limits", "upload_mb"), _("has another name now"), _("write `uploads: {max_mb: …}`"), on_key=True
        )
    kinds = uploads.get("kinds") if isinstance(uploads, dict) else None
    for i, kind in enumerate(kinds if isinstance(kinds, list) else ()):
        if isinstance(kind, str) and kind not in (*KINDS, OTHER) and not (kind.startswith(".") and kind[1:].isalnum()):
            document.fault(("uploads", "kinds", i), _("there is no such kind of files"), suggest(kind, [*KINDS, OTHER]))
