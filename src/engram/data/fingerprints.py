"""The name that content has: equal content, equal name, on every machine and in every run."""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

_Path = tuple[types.FunctionType | type, ...]  # the functions and classes being walked, outermost first

LIBRARIES = {"torch", "numpy", "scipy", *sys.stdlib_module_names}  # their classes are named, and not read


def fingerprint(*things: Any) -> str:
    """Sixteen hexadecimal digits that name what is given, down to its type.

    Knows what a recipe can hold: plain values and collections, arrays, tensors, modules, frozen dataclasses, and
    functions with the constants, defaults, closures and module-level values they use, and classes with their methods.
    Anything else is refused: a name that leaves something out would let a stored result stand for another. Functions
    are named by their bytecode, so another minor version of Python gives them another name.

    >>> fingerprint(1) == fingerprint(1.0)
    False
    """
    return _digest("things", *(_walk(thing, ()) for thing in things)).hex()[:16]


def _digest(tag: str, *parts: str | bytes) -> bytes:
    """SHA-256 of a tag and parts, each after its length, so that no two lists of parts read alike."""
    told = hashlib.sha256()
    for part in (tag, *parts):
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        told.update(len(raw).to_bytes(8, "big") + raw)
    return told.digest()


def _walk(value: Any, path: _Path) -> bytes:
    for reader in (_plain, _array, _torch, _collection, _dataclass, _callable):
        found = reader(value, path)
        if found is not None:
            return found
    raise TypeError(
        f"cannot fingerprint {_qualified(type(value))}; make it a frozen dataclass whose fields say all that matters"
    )


def _plain(value: Any, path: _Path) -> bytes | None:
    if isinstance(value, enum.Enum):
        return _digest("enum", _qualified(type(value)), value.name)
    if isinstance(value, np.generic):
        return _array(np.asarray(value), path)
    if value is None or value is Ellipsis or isinstance(value, bool | int | float | complex | range | slice):
        return _digest(type(value).__name__, repr(value))
    if isinstance(value, str | bytes):
        return _digest(type(value).__name__, value)
    if isinstance(value, PurePath):
        return _digest("path", value.as_posix())
    if isinstance(value, np.dtype):
        return _digest("dtype", value.str)
    return None


def _array(value: Any, path: _Path) -> bytes | None:  # noqa: ARG001  every reader is called alike
    if not isinstance(value, np.ndarray):
        return None
    if value.dtype.kind not in "biufcSUmM":
        raise TypeError(f"cannot fingerprint an array of {value.dtype}; make it an array of numbers or of text")
    return _digest("array", value.dtype.str, repr(value.shape), np.ascontiguousarray(value).tobytes())


def _torch(value: Any, path: _Path) -> bytes | None:
    torch = sys.modules.get("torch")  # what is given can be a tensor only where torch is loaded
    if torch is None:
        return None
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"cannot fingerprint a tensor of layout {value.layout}; call to_dense() first")
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return _digest("tensor", str(value.dtype), repr(tuple(value.shape)), raw.tobytes())
    if isinstance(value, torch.nn.Module):
        return _digest("module", _walk(type(value), path), *_module(value, path))
    if isinstance(value, torch.dtype | torch.device | torch.layout):
        return _digest("torch", repr(value))
    return None


def _module(module: Any, path: _Path) -> Iterator[bytes]:
    """Weights, buffers, sub-modules in their order, and plain attributes such as a stride; not the training mode."""
    yield _walk({k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}, path)
    for held in (module._parameters, module._buffers, module._modules):
        yield _walk(list(held.items()), path)
    yield _walk([name for name, p in module._parameters.items() if p is not None and p.requires_grad], path)


def _collection(value: Any, path: _Path) -> bytes | None:
    if isinstance(value, Mapping):
        return _digest("mapping", *sorted(_digest("item", _walk(k, path), _walk(v, path)) for k, v in value.items()))
    if isinstance(value, set | frozenset):
        return _digest("set", *sorted(_walk(v, path) for v in value))
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        name = "" if type(value) in (list, tuple) else _qualified(type(value))
        return _digest(kind, name, *(_walk(v, path) for v in value))
    return None


def _dataclass(value: Any, path: _Path) -> bytes | None:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    if not type(value).__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise TypeError(f"cannot fingerprint {_qualified(type(value))}, a dataclass that can change; make it frozen")
    held = (_digest("field", f.name, _walk(getattr(value, f.name), path)) for f in dataclasses.fields(value))
    return _digest("dataclass", _walk(type(value), path), *held)


def _callable(value: Any, path: _Path) -> bytes | None:
    if isinstance(value, functools.partial):
        return _digest("partial", *(_walk(v, path) for v in (value.func, value.args, value.keywords)))
    if isinstance(value, types.MethodType):
        return _digest("method", _walk(value.__self__, path), _walk(value.__func__, path))
    if isinstance(value, types.FunctionType):
        return _function(value, path)
    if isinstance(value, type):
        return _class(value, path)
    if isinstance(value, types.ModuleType):
        return _digest("namespace", value.__name__)
    if isinstance(value, types.CodeType):
        return _code(value, path)
    if isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType | np.ufunc):
        return _digest("builtin", str(getattr(value, "__module__", "")), getattr(value, "__qualname__", value.__name__))
    return None


def _class(cls: type, path: _Path) -> bytes:
    """Its name and what its body says: methods, and values that have a name of their own."""
    if cls in path:
        return _digest("itself", str(path[::-1].index(cls)))
    if cls.__module__.partition(".")[0] in LIBRARIES:
        return _digest("class", _qualified(cls))
    inside = (*path, cls)
    bases = [_walk(base, inside) for base in cls.__bases__]
    body = [_digest("item", name, *_member(cls, name, inside)) for name in sorted(vars(cls))]
    return _digest("class", _qualified(cls), *bases, *body)


def _member(cls: type, name: str, path: _Path) -> Iterator[bytes]:
    value = vars(cls)[name]
    if isinstance(value, property):
        yield from (_walk(f, path) for f in (value.fget, value.fset) if f)
    value = getattr(value, "__func__", getattr(value, "func", value))  # of a static, class or cached one
    if isinstance(value, types.FunctionType):
        written = inspect.unwrap(value).__code__.co_filename != "<string>"  # by hand, and not by a decorator
        yield from [_walk(value, path)] if written or not dataclasses.is_dataclass(cls) else []
    elif not name.startswith("__"):
        found = (reader(value, path) for reader in (_plain, _array, _torch, _collection, _dataclass, _callable))
        yield from (one for one in found if one)


def _function(function: types.FunctionType, path: _Path) -> bytes:
    if function in path:
        return _digest("itself", str(path[::-1].index(function)))
    inside = (*path, function)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    parts = (function.__code__, function.__defaults__, function.__kwdefaults__, cells, _globals(function, inside))
    return _digest("function", _qualified(function), *(_walk(part, inside) for part in parts))


def _code(code: types.CodeType, path: _Path) -> bytes:
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    takes = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return _digest("code", code.co_code, *(_walk(part, path) for part in (*names, takes, code.co_consts)))


def _globals(function: types.FunctionType, path: _Path) -> dict[str, Any]:
    """The module-level values it reads. Of a function that another module gave, the code alone counts."""
    if function.__module__ != path[0].__module__:
        return {}
    return {
        name: function.__globals__[name] for name in _global_names(function.__code__) if name in function.__globals__
    }


def _global_names(code: types.CodeType) -> set[str]:
    here = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return here.union(*(_global_names(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


def _qualified(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
