"""`python -m gpukit`, and `python gpukit-X.whl/gpukit` for a wheel that is not installed."""

import _signal  # the module signal takes 5 ms to import
import os
import sys
import zipimport


class Importer(zipimport.zipimporter):
    """Compiles each module once; Python's own compiles it first to learn its file name (python/cpython#141276)."""

    def get_filename(self, fullname: str) -> str:
        name = self.prefix + fullname.rpartition(".")[2]
        return f"{self.archive}/{name}/__init__.py" if self.is_package(fullname) else f"{self.archive}/{name}.py"

    @classmethod
    def use(cls) -> None:
        sys.path_hooks.insert(0, cls)
        sys.path_importer_cache.clear()


def run_from_wheel() -> None:
    """Called by ./launch. It raises an exception only if the wheel is damaged, or is not what its name says."""
    Importer.use()
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # until `main`: imports may swallow KeyboardInterrupt
    wheel = sys.path[0]
    version = os.path.basename(wheel).split("-")[1]  # noqa: PTH119 - pathlib takes 5 ms to import
    __loader__.get_data(f"gpukit-{version}.dist-info/WHEEL")
    from gpukit.cli.main import main

    try:
        sys.exit(main())
    except Exception as error:
        if is_damaged(wheel):
            raise
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def is_damaged(wheel: str) -> bool:
    import zipfile

    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.testzip() is not None
    except Exception:  # what zipfile raises depends on which bytes are wrong
        return True


if __name__ == "__main__":
    if not __package__:  # run as a path: Python put the folder of this file on sys.path, and gpukit lies beside it
        sys.path[0] = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
        Importer.use()
    from gpukit.cli.main import main

    sys.exit(main())
