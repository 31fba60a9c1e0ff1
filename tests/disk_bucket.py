"""A folder that stands in for `gs://bucket`: objects that do not grow, and some that may not be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
from etils.epath import backend
from fsspec.implementations.local import LocalFileSystem


@contextmanager
def disk_bucket(folder: Path) -> Iterator[None]:
    """`gs://bucket` is the folder meanwhile; what has `readonly` in its name is refused."""

    class Bucket(LocalFileSystem):
        protocol = ("gs", "gcs")
        cachable = False

        def __init__(self, **options):
            super().__init__(auto_mkdir=True)

        @classmethod
        def _strip_protocol(cls, path):
            return str(path).replace("gs://bucket", str(folder)).rstrip("/")

        def _open(self, path, mode="rb", **options):
            assert "a" not in mode, "objects do not grow"
            if "w" in mode and "readonly" in str(path):
                raise OSError(403, "the caller does not have storage.objects.create access")
            return super()._open(path, mode, **options)

    fsspec.register_implementation("gcs", Bucket, clobber=True)
    # etils keeps the first file system that it gets for gs://, another test's perhaps.
    forget = backend._FileSystemSpecBackend._get_filesystem.cache_clear
    forget()
    yield
    forget()
