"""The texts that a build generates: `_ops.py`, which every kernel imports, and `registration.h`, which its binding includes.

Repository format, section (e): the names are the ecosystem's, because kernels' sources use them.
"""

from __future__ import annotations

REGISTRATION_HEADER = """\
// Registers operators under a namespace that is itself a macro, and makes the library importable. Generated.
#pragma once

#include <Python.h>

// A macro's argument is expanded before it is pasted, if it passes through one more macro on its way.
#define TORCH_LIBRARY_EXPAND(NAMESPACE, LIBRARY) TORCH_LIBRARY(NAMESPACE, LIBRARY)
#define TORCH_LIBRARY_IMPL_EXPAND(NAMESPACE, KEY, LIBRARY) TORCH_LIBRARY_IMPL(NAMESPACE, KEY, LIBRARY)
#define STABLE_TORCH_LIBRARY_EXPAND(NAMESPACE, LIBRARY) STABLE_TORCH_LIBRARY(NAMESPACE, LIBRARY)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAMESPACE, KEY, LIBRARY) STABLE_TORCH_LIBRARY_IMPL(NAMESPACE, KEY, LIBRARY)

#define KERNEL_MODULE_TEXT_OF(NAME) #NAME
#define KERNEL_MODULE_TEXT(NAME) KERNEL_MODULE_TEXT_OF(NAME)
#define KERNEL_MODULE_INIT_OF(NAME) PyInit_##NAME
#define KERNEL_MODULE_INIT(NAME) KERNEL_MODULE_INIT_OF(NAME)

// An importable module without contents: importing it runs the library's static registrations.
#define REGISTER_EXTENSION(NAME)                                                              \\
  PyMODINIT_FUNC KERNEL_MODULE_INIT(NAME)(void) {                                             \\
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, KERNEL_MODULE_TEXT(NAME),  \\
                                            nullptr, 0, nullptr, nullptr, nullptr, nullptr,   \\
                                            nullptr};                                         \\
    return PyModule_Create(&definition);                                                      \\
  }
"""

_NATIVE_OPS = '''\
"""The operators of this build, registered by importing its native module. Generated."""

import torch

from . import {module_id}  # noqa: F401

ops = torch.ops.{module_id}


def add_op_namespace_prefix(op_name: str) -> str:
    """The operator's full name."""
    return f"{module_id}::{{op_name}}"
'''

_NOARCH_OPS = '''\
"""The operator namespace of this build, for operators that are registered from Python. Generated."""

import torch

ops = torch.ops.{module_id}


def add_op_namespace_prefix(op_name: str) -> str:
    """The operator's full name."""
    return f"{module_id}::{{op_name}}"
'''


_TVM_FFI_OPS = '''\
"""The functions of this build, from its native module. Generated."""

from importlib.util import find_spec
from pathlib import Path

import tvm_ffi

ops = tvm_ffi.load_module(str(Path(__file__).parent / "{library}"))
has_torch = find_spec("torch") is not None
has_jax = find_spec("jax") is not None and find_spec("jax_tvm_ffi") is not None


def torch_add_op_namespace_prefix(op_name: str) -> str:
    """The name of an operator that is registered with torch."""
    return f"{module_id}::{{op_name}}"


def jax_add_ffi_target_name_prefix(target_name: str) -> str:
    """The name of a target that is registered with JAX."""
    return f"{module_id}::{{target_name}}"
'''


def native_ops(module_id: str) -> str:
    """`_ops.py` of a compiled torch build."""
    return _NATIVE_OPS.format(module_id=module_id)


def noarch_ops(module_id: str) -> str:
    """`_ops.py` of a build without compiled code.

    The namespace is a constant, since every build is for one backend; finding the backend at run time, as other builders'
    files do, would come to the same name on the device and to a wrong one beside it.
    """
    return _NOARCH_OPS.format(module_id=module_id)


def tvm_ffi_ops(module_id: str, library: str) -> str:
    """`_ops.py` of a tvm-ffi build."""
    return _TVM_FFI_OPS.format(module_id=module_id, library=library)
