"""The inputs of `benchmarks/fuzz_readers.py`, the files of a folder as one sequence of bytes, and what damages them."""

import gzip
import hashlib
import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl

Files = dict[str, bytes]
SEEDS: Files = {}  # of the reader of this process; empty where a single input is read


def packed(files: Files) -> bytes:
    parts = []
    for name, content in sorted(files.items()):
        encoded = name.encode()
        parts.append(bytes([len(encoded)]) + encoded + len(content).to_bytes(4, "little") + content)
    return b"".join(parts)


def unpacked(data: bytes) -> Files:
    """The files of an input, none for bytes that are not packed."""
    files, at = {}, 0
    while at < len(data):
        end = at + 1 + data[at]
        name = data[at + 1 : end].decode("utf-8", "replace")
        size = int.from_bytes(data[end : end + 4], "little")
        files[name], at = data[end + 4 : end + 4 + size], end + 4 + size
    safe = all(name and not name.startswith("/") and ".." not in name and "\0" not in name for name in files)
    return files if safe and packed(files) == data else {}


def files_in(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_files(files: Files, folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


# Mutations.

ODD_NUMBERS = (0, 1, 2, 7, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63)
ODD_WORDS = (
    *("", "NA", "nan", "inf", "-1", "0.5", "1e400", "1e39", "1" + "0" * 18, "9" * 30, "true", "null", "[]", '"'),
    *("a,b", "\0", "é", "١٢", "2020-01-01", "2020-02-30", "x|y", "1_000", "-0", " 1 ", "[1,2]", "{}"),
)
ODD_VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 10**9, 2**63, 10**30, "", "x", "1", [], {}, [1], {"x": 1}, [[1]],
                               1e400, float("nan"), "\ud800", ["a", None])  # fmt: skip


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """One to three changes of bytes: flips, numbers of one to eight bytes, cuts, copies and moves."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(6)
        if kind == 0 and changed:
            changed[at - 1] ^= 1 << rng.randrange(8)
        elif kind == 1:
            width = rng.choice((1, 2, 4, 8))
            number = (rng.choice(ODD_NUMBERS) + rng.choice((0, 0, -1, len(changed)))) % 256**width
            changed[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
        elif kind == 2:
            del changed[at : at + rng.choice((1, 2, 8, 64, len(changed)))]
        elif kind == 3:
            changed[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 4:
            start = rng.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + rng.choice((1, 4, 16, 128))]
        else:
            word = rng.choice(ODD_WORDS).encode()
            changed[at : at + len(word)] = word
    return bytes(changed)


def mutate_json(rng: random.Random, value: Any) -> Any:
    """Another value in one place: replaced, removed, doubled, renamed."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.08:
            return {name: inner for name, inner in value.items() if name != key}
        if kind < 0.14:
            return {(rng.choice((*ODD_WORDS, "/etc/hostname", "../x")) if name == key else name): inner
                    for name, inner in value.items()}  # fmt: skip
        return {**value, key: mutate_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        kind = rng.random()
        if kind < 0.1:
            return [*value[:at], *value[at + 1 :]]
        if kind < 0.2:
            return [*value, value[at]]
        return [*value[:at], mutate_json(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.7:
        try:
            return json.dumps(mutate_json(rng, json.loads(value)))
        except ValueError:
            return value
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.4:
        return rng.choice((-value, value + 1, value * 10**6, value / 3))
    return rng.choice(ODD_VALUES)


def mutate_text(rng: random.Random, text: str) -> str:
    """Another cell, a doubled or missing line, or a name twice."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(5)
    if kind == 0:
        lines[at:at] = [lines[at]]
    elif kind == 1:
        del lines[at]
    else:
        cells = lines[at].split(",")
        place = rng.randrange(len(cells))
        cells[place] = rng.choice((*ODD_WORDS, rng.choice(cells), cells[place] * 2))
        lines[at] = ",".join(cells)
    return "\n".join(lines)


def mutate_content(rng: random.Random, name: str, content: bytes) -> bytes:
    """Change one file in a way that fits its format, or its bytes."""
    try:
        if rng.random() < 0.35:
            return mutate_bytes(rng, content)
        if name.endswith((".json", ".jsonl")):
            lines = content.decode().split("\n") if not content.startswith(b"{\n") else [content.decode()]
            at = rng.randrange(len(lines))
            lines[at] = json.dumps(mutate_json(rng, json.loads(lines[at])))
            return "\n".join(lines).encode("utf-8", "surrogatepass")
        if name.endswith((".csv", ".toml")):
            return mutate_text(rng, content.decode()).encode()
        if name.endswith(".gz"):
            return gzip.compress(mutate_content(rng, name[:-3], gzip.decompress(content)), 1)
        if name.endswith((".npz", ".zip")):
            return mutate_zip(rng, content)
        if name.endswith(".npy"):
            return mutate_npy(rng, content)
        if name.endswith((".parquet", ".arrow")):
            return mutate_table(rng, name, SEEDS.get(name, content))  # what is damaged may end this process
        if name.endswith(".hdf5"):
            return mutate_hdf5(rng, SEEDS.get(name, content))
        if name.endswith(".safetensors"):
            size = int.from_bytes(content[:8], "little")
            header = json.dumps(mutate_json(rng, json.loads(content[8 : 8 + size]))).encode()
            return len(header).to_bytes(8, "little") + header + content[8 + size :]
    except Exception:  # a file that does not have its format any more
        return mutate_bytes(rng, content)
    return mutate_bytes(rng, content)


def mutate_zip(rng: random.Random, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = rng.randrange(len(members))
    name, inner = members[at]
    kind = rng.random()
    if kind < 0.08:
        members.append(members[at])
    elif kind < 0.16:
        members[at] = (rng.choice((name + "x", "../" + name, members[0][0])), inner)
    elif kind < 0.22:
        del members[at]
    else:
        members[at] = (name, mutate_content(rng, name, inner))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), inner)
    return file.getvalue()


def mutate_npy(rng: random.Random, content: bytes) -> bytes:
    """Change a header, or write the numbers in another type or shape."""
    if rng.random() < 0.4:
        end = 10 + int.from_bytes(content[8:10], "little")
        return content[:8] + content[8:10] + mutate_bytes(rng, content[10:end]) + content[end:]
    values = np.load(io.BytesIO(content), allow_pickle=False)
    kind = rng.randrange(5)
    with np.errstate(all="ignore"):
        if kind == 0:
            values = values.astype(rng.choice(("f8", "f4", "i1", "i8", "u8", "?", "U3", "S3", "M8[us]", "c8")))
        elif kind == 1:
            values = values.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (-1, 1, 1, 1))))
        elif kind == 2:
            values = values[: rng.randrange(len(values) + 1)] if values.ndim else values
        elif values.size:
            values = values.copy()
            odd = np.asarray(rng.choice((0, -1, 1, 7, 2**31 - 1, float("nan"), float("inf"))))
            values.reshape(-1)[rng.randrange(values.size)] = odd.astype(values.dtype)
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def mutate_table(rng: random.Random, name: str, content: bytes) -> bytes:
    """Write a column in another type, under another name, twice, not at all, or with odd cells."""
    read, write = ("read_parquet", "write_parquet") if name.endswith(".parquet") else ("read_ipc", "write_ipc")
    table = getattr(pl, read)(io.BytesIO(content))
    column = rng.choice(table.columns)
    kind = rng.randrange(7)
    if kind == 0:
        odd = rng.choice((pl.String, pl.Int8, pl.UInt64, pl.Float32, pl.Boolean, pl.Datetime("us"), pl.Date, pl.Binary,
                          pl.Duration("ms"), pl.Categorical(), pl.Decimal(12, 2), pl.Time, pl.Int128))  # fmt: skip
        table = table.with_columns(table[column].cast(odd, strict=False))
    elif kind == 1:
        table = table.rename({column: rng.choice((*ODD_WORDS, column.upper()))})
    elif kind == 2:
        table = table.drop(column)
    elif kind == 3:
        table = table.with_columns(pl.concat_list(column, column).alias(column))
    elif kind == 4:
        table = table.with_columns(pl.struct(column).alias(column))
    elif kind == 5:
        table = table.sample(rng.randrange(12), with_replacement=True, seed=rng.randrange(2**30))
    else:
        at, odd = rng.randrange(max(1, len(table))), rng.choice(ODD_VALUES)
        cells = [odd if row == at else cell for row, cell in enumerate(table[column].to_list())]
        table = table.with_columns(pl.Series(column, cells, strict=False))
    file = io.BytesIO()
    packing = ("uncompressed", "zstd", "lz4") if write == "write_ipc" else ("uncompressed", "zstd", "snappy", "gzip")
    getattr(table, write)(file, compression=rng.choice(packing))
    return file.getvalue()


def mutate_hdf5(rng: random.Random, content: bytes) -> bytes:
    """Write a data set in another type or shape, under another name, as a link, or not at all."""
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as root:
        names: list[str] = []
        root.visit(names.append)
        name = rng.choice(names)
        one, kind = root[name], rng.randrange(6)
        if kind == 0:
            del root[name]
        elif kind == 1:
            root.move(name, name + rng.choice(("x", "/x", "0", " ")))
        elif kind == 2:
            del root[name]
            soft = (h5py.SoftLink("/" + rng.choice(names)), h5py.SoftLink(name))
            root[name] = rng.choice((*soft, h5py.ExternalLink("/etc/hostname", "/")))
        elif isinstance(one, h5py.Group):
            one.attrs["x"] = 1
        else:
            values = np.asarray(one[()])
            del root[name]
            kind = rng.randrange(4)
            if kind == 0:
                values = values.astype(rng.choice(("f8", "f2", "i1", "u8", "?", "S3", "c8")))
            elif kind == 1:
                values = values.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (-1, 1, 1, 1))))
            elif kind == 2:
                values = values[: rng.randrange(len(values) + 1)] if values.ndim else values
            elif values.size and values.dtype.kind in "fiu":
                values.reshape(-1)[rng.randrange(values.size)] = rng.choice((0, 1, 7, 100))
            odd = {} if not values.ndim or rng.random() < 0.6 else {"chunks": True, "compression": "gzip"}
            root.create_dataset(name, data=values, **odd)
    return file.getvalue()


def repaired(files: Files) -> Files:
    """The same files with the right checksums in every manifest, record of a run, and plan of a sweep."""
    from tidelog._files import Kind, digest

    files = dict(files)
    for name in [name for name in files if name.split("/")[-1] == "manifest.json"]:
        try:
            body = json.loads(files[name])
            body.pop("sha256", None)
            folder = name[: -len("manifest.json")]
            listed = body.get("files")
            for file in listed if isinstance(listed, dict) else ():
                content = files.get(folder + file)
                if content is not None and isinstance(listed[file], dict) and "sha256" in listed[file]:
                    listed[file] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for column in body.get("columns", ()):
                content = files.get(folder + column["file"], b"")
                values = np.load(io.BytesIO(content), allow_pickle=False)
                column |= {"dtype": values.dtype.str, "shape": list(values.shape)}
            kind, listed = Kind(body.pop("kind"), body.pop("schema")), body.pop("files")
            files[name] = kind.text(body, listed)
        except Exception:  # a manifest without the structure of one stays as it is
            continue
    for name in [name for name in files if name.split("/")[-1] in ("run.json", "sweep.json")]:
        try:
            body = json.loads(files[name])
            files[name] = json.dumps(
                {**body, "sha256": digest({k: v for k, v in body.items() if k != "sha256"})}
            ).encode()
        except Exception:  # a record without the structure of one stays as it is
            continue
    return files


def mutated(data: bytes, seed: int) -> bytes:
    """An input after one to four changes; most folders with checksums get them right again."""
    rng = random.Random(seed)
    files = unpacked(data)
    if not files:
        return data
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        name = rng.choice(sorted(files))
        files[name] = mutate_content(rng, name, files[name])
    if rng.random() < 0.03 and len(files) > 1:
        del files[rng.choice(sorted(files))]
    return packed(repaired(files) if rng.random() < 0.8 else files)
