"""Files, buffers and memory that record what is done to them, and fail when a test wants it."""

from rocketlake.files.ops import PosixFileOps

PAGE = 4096
SIZE = 10 * PAGE
BASE = 2 * SIZE


class FaultyOps(PosixFileOps):
    """Keeps a list of what was called, as `name path`, and raises what `faults` has for a name."""

    def __init__(self):
        self.calls = []
        self.faults = {}
        self.open_writers = 0

    def note(self, name, path):
        self.calls.append(f"{name} {path.name}")
        fault = self.faults.get(name)
        if fault is not None:
            raise fault

    def count(self, name):
        return sum(call.split()[0] == name for call in self.calls)

    def open_writer(self, path):
        self.note("open", path)
        return FaultyWriter(self, path, super().open_writer(path))

    def create(self, path, size, *, is_sparse=False):
        self.note("create", path)
        return FaultyWriter(self, path, super().create(path, size, is_sparse=is_sparse))

    def rename(self, source, target):
        self.note("rename", target)
        super().rename(source, target)

    def link(self, source, target):
        self.note("link", target)
        return super().link(source, target)

    def unlink(self, path):
        self.note("unlink", path)
        return super().unlink(path)

    def sync_dir(self, path):
        self.note("sync_dir", path)
        super().sync_dir(path)


class FaultyWriter:
    """An open file that tells its FaultyOps what is done to it."""

    def __init__(self, ops, path, inner):
        self._ops = ops
        self._path = path
        self._inner = inner
        self._is_open = True
        ops.open_writers += 1

    def __getattr__(self, name):
        method = getattr(self._inner, name)

        def call(*arguments):
            self._ops.note(name, self._path)
            return method(*arguments)

        return call

    def close(self):
        self._ops.open_writers -= self._is_open
        self._is_open = False
        self._inner.close()


class Loan:
    """A borrowed buffer with old bytes in it."""

    def __init__(self, size=SIZE):
        self.buffer = memoryview(bytearray(b"\xee" * size))
        self.returns = 0

    def give_back(self):
        self.returns += 1


class FakeMap:
    """Memory that counts what is asked of it."""

    def __init__(self, size, locks):
        self.buffer = memoryview(bytearray(size))
        self.calls = []
        self._locks = locks

    def populate(self, position, size, *, may_touch=True):
        self.calls.append(("populate", position, size) if may_touch else ("ahead", position, size))
        return True

    def lock(self, position, size):
        self.calls.append(("lock", position, size))
        return self._locks

    def unlock(self):
        self.calls.append(("unlock",))
        return True

    def advise(self, advice):
        self.calls.append(("advise", advice))
        return True

    def close(self):
        pass
