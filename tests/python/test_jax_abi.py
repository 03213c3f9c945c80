"""The declarations of XLA's C interface, against the header of the jaxlib that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")

BINDINGS = Path(__file__).resolve().parents[2] / "python" / "bindings"

# Ours, XLA's, and the fields. A name of XLA's that changed is a tuple of names: the one that the header has is meant.
STRUCTS = {
    "Extension": (("XLA_FFI_InternalExtension", "XLA_FFI_Extension_Base"), {"type": "type", "next": "next"}),
    "Version": ("XLA_FFI_Api_Version", {"major_version": "major_version", "minor_version": "minor_version"}),
    "Metadata": ("XLA_FFI_Metadata", {"version": "api_version", "traits": "traits"}),
    "MetadataExtension": ("XLA_FFI_Metadata_Extension", {"metadata": "metadata"}),
    "Buffer": ("XLA_FFI_Buffer", {"dtype": "dtype", "data": "data", "rank": "rank", "dims": "dims"}),
    "Buffers": ("XLA_FFI_Args", {"size": "size", "types": "types", "buffers": "args"}),
    "ByteSpan": ("XLA_FFI_ByteSpan", {"data": "ptr", "size": "len"}),
    "Scalar": ("XLA_FFI_Scalar", {"dtype": "dtype", "value": "value"}),
    "Attributes": ("XLA_FFI_Attrs", {"size": "size", "types": "types", "names": "names", "values": "attrs"}),
    "CallFrame": (
        "XLA_FFI_CallFrame",
        {
            "extensions": "extension_start",
            "api": "api",
            "context": "ctx",
            "stage": "stage",
            "arguments": "args",
            "results": "rets",
            "attributes": "attrs",
        },
    ),
    "ErrorCreate": ("XLA_FFI_Error_Create_Args", {"message": "message", "code": "errc"}),
    "ErrorGetMessage": (
        ("XLA_FFI_Error_GetDetails_Args", "XLA_FFI_Error_GetMessage_Args"),
        {"error": "error", "message": "message"},
    ),
    "ErrorDestroy": ("XLA_FFI_Error_Destroy_Args", {"error": "error"}),
    "StreamGet": ("XLA_FFI_Stream_Get_Args", {"context": "ctx", "stream": "stream"}),
    "DeviceMemoryAllocate": (
        "XLA_FFI_DeviceMemory_Allocate_Args",
        {"context": "ctx", "size": "size", "alignment": "alignment", "data": "data"},
    ),
    "DeviceMemoryFree": ("XLA_FFI_DeviceMemory_Free_Args", {"context": "ctx", "size": "size", "data": "data"}),
    "DeviceOrdinalGet": ("XLA_FFI_DeviceOrdinal_Get_Args", {"context": "ctx", "device_ordinal": "device_ordinal"}),
    "Api": (
        "XLA_FFI_Api",
        {
            "version": "api_version",
            "error_create": "XLA_FFI_Error_Create",
            "error_get_message": ("XLA_FFI_Error_GetDetails", "XLA_FFI_Error_GetMessage"),
            "error_destroy": "XLA_FFI_Error_Destroy",
            "stream_get": "XLA_FFI_Stream_Get",
            "device_memory_allocate": "XLA_FFI_DeviceMemory_Allocate",
            "device_memory_free": "XLA_FFI_DeviceMemory_Free",
            "device_ordinal_get": "XLA_FFI_DeviceOrdinal_Get",
        },
    ),
}
CONSTANTS = {
    "DataType::pred": "XLA_FFI_DataType_PRED",
    "DataType::s32": "XLA_FFI_DataType_S32",
    "DataType::s64": "XLA_FFI_DataType_S64",
    "DataType::u32": "XLA_FFI_DataType_U32",
    "DataType::f16": "XLA_FFI_DataType_F16",
    "DataType::f32": "XLA_FFI_DataType_F32",
    "DataType::bf16": "XLA_FFI_DataType_BF16",
    "ErrorCode::invalid_argument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "ErrorCode::unimplemented": "XLA_FFI_Error_Code_UNIMPLEMENTED",
    "ErrorCode::internal": "XLA_FFI_Error_Code_INTERNAL",
    "kMetadataExtension": "XLA_FFI_Extension_Metadata",
    "kScalarAttribute": "XLA_FFI_AttrType_SCALAR",
    "kStringAttribute": "XLA_FFI_AttrType_STRING",
    "kMajorVersion": "XLA_FFI_API_MAJOR",
}


# Filled here and passed to XLA, which may write all of its own structure; the others come from XLA.
PASSED = ("ErrorCreate", "ErrorGetMessage", "ErrorDestroy", "StreamGet", "DeviceMemoryAllocate", "DeviceMemoryFree")
PASSED += ("DeviceOrdinalGet",)


def source(header: str) -> str:
    def name(candidates):
        if isinstance(candidates, str):
            return candidates
        return next(each for each in candidates if re.search(rf"\b{each}\b", header))

    lines = ["#include <cstddef>", '#include "xla/ffi/api/c_api.h"', '#include "xla_abi.h"']
    lines.append("namespace xla = sparsek::python::xla;")
    for ours, (theirs, fields) in STRUCTS.items():
        theirs = name(theirs)
        for mine, yours in fields.items():
            yours = name(yours)
            lines.append(f"static_assert(offsetof(xla::{ours}, {mine}) == offsetof({theirs}, {yours}));")
            lines.append(f"static_assert(sizeof(xla::{ours}::{mine}) == sizeof({theirs}::{yours}));")
        comparison = ">=" if ours in PASSED else "<="
        lines.append(f"static_assert(sizeof(xla::{ours}) {comparison} sizeof({theirs}));")
    lines += [
        f"static_assert(static_cast<int>(xla::{ours}) == static_cast<int>({theirs}));"
        for ours, theirs in CONSTANTS.items()
    ]
    lines.append("static_assert(offsetof(XLA_FFI_Rets, rets) == offsetof(xla::Buffers, buffers));")
    return "\n".join(lines) + "\n"


def test_declarations_agree_with_the_header(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    include = Path(jax.ffi.include_dir())
    (tmp_path / "abi.cpp").write_text(source((include / "xla" / "ffi" / "api" / "c_api.h").read_text()))
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wno-invalid-offsetof"]
    command += [f"-I{include}", f"-I{BINDINGS}", str(tmp_path / "abi.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
