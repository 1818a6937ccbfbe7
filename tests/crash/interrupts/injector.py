"""Raises an exception at a chosen instruction of a call, as a signal handler may.

A signal handler of Python runs between two instructions of the main thread, and what it raises
comes from there. `Injector` counts the instructions of a call, in all functions that it calls, and
raises at the one it was told.

Some places are left out, since the interpreter looks for signals only where a function begins,
where a loop goes back and behind a call: (1) between the end of a `with` block and the call of
`__exit__`, whether the block ended well or by an exception, (2) between the last statement of a
function and its return, (3) instructions that do nothing.
"""

import ctypes
import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable

_REFERENCES = 100_000


class Interrupt(BaseException):
    """What a test raises in the middle of a call."""


@functools.cache
def quiet_offsets(code: types.CodeType) -> frozenset[int]:
    """Return the instructions before which no signal is handled."""
    found: set[int] = set()
    instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    nones = 0
    for index, instruction in enumerate(instructions):
        is_none = instruction.opname == "LOAD_CONST" and instruction.argval is None
        nones = nones + 1 if is_none else 0
        if nones == 3:  # __exit__(None, None, None)
            found |= {i.offset for i in instructions[index - 2 : index + 4]}
            before = instructions[index - 3]
            found |= {before.offset} if before.opname in {"SWAP", "NOP"} else set()
        if instruction.opname in {"NOP", "PUSH_EXC_INFO", "WITH_EXCEPT_START"}:
            found.add(instruction.offset)
        if instruction.opname in {"RETURN_VALUE", "RETURN_CONST"}:
            found.add(instruction.offset)
            if index and instructions[index - 1].opname.startswith("LOAD_"):
                found.add(instructions[index - 1].offset)
    return frozenset(found)


class Injector:
    """Runs calls, and raises at one instruction of each."""

    def __init__(self) -> None:
        self._left = 0
        self.count = 0
        """How many instructions the last call had before it was hit or ended."""
        self.was_hit = False
        self.place = ""
        # Why: CPython 3.11 drops one reference too many to a trace function that raises.
        self._hooks = (self._on_call, self._on_instruction)
        for hook in self._hooks:
            for _ in range(_REFERENCES):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(hook))

    def run(self, call: Callable[[], object], at: int) -> bool:
        """Call a function and raise before its instruction number `at`; False if it has fewer."""
        self._left, self.count = at, 0
        self.was_hit = False
        before = sys.gettrace()
        try:
            sys.settrace(self._hooks[0])
            try:
                call()
            finally:
                sys.settrace(before)
        except Interrupt:
            pass
        return self.was_hit

    def _on_call(self, frame: types.FrameType, event: str, argument: object) -> object:
        if "crash" in frame.f_code.co_filename or self.was_hit:
            return None
        # The interpreter itself ignores what a finalizer raises.
        if "__del__" in (frame.f_code.co_name, frame.f_back and frame.f_back.f_code.co_name):
            return None
        if frame.f_code.co_flags & inspect.CO_GENERATOR and frame.f_lasti > 0:
            return None  # it may be a generator that is being finalized
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._hooks[1]

    def _on_instruction(self, frame: types.FrameType, event: str, argument: object) -> object:
        if event != "opcode" or self.was_hit:
            return self._hooks[1]
        if frame.f_lasti in quiet_offsets(frame.f_code):
            return self._hooks[1]
        if self._left == 0:
            self.was_hit = True
            self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_lasti})"
            raise Interrupt
        self._left -= 1
        self.count += 1
        return self._hooks[1]
