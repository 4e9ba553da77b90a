# SPDX-License-Identifier: Apache-2.0
"""Braid's schemas compared with the official ones, from which the published packages were compiled."""

import importlib
import pathlib
import subprocess

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

import tempopb

pytestmark = pytest.mark.release_only

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"

# Braid's file: the official module, and whether Braid's contains all of its messages or a
# selection.
OFFICIAL = {
    "opentelemetry/proto/common/v1/common.proto": ("all", "common.v1.common"),
    "opentelemetry/proto/resource/v1/resource.proto": ("all", "resource.v1.resource"),
    "opentelemetry/proto/trace/v1/trace.proto": ("all", "trace.v1.trace"),
    "opentelemetry/proto/profiles/v1development/profiles.proto":
        ("all", "profiles.v1development.profiles"),
    "opentelemetry/proto/collector/trace/v1/trace_service.proto":
        ("all", "collector.trace.v1.trace_service"),
    "opentelemetry/proto/collector/profiles/v1development/profiles_service.proto":
        ("all", "collector.profiles.v1development.profiles_service"),
    "google/protobuf/any.proto": ("all", "google.protobuf.any"),
    "google/protobuf/duration.proto": ("all", "google.protobuf.duration"),
    "google/rpc/status.proto": ("all", "google.rpc.status"),
    "google/rpc/error_details.proto": ("some", "google.rpc.error_details"),
}

# pprof does not publish a package. Source: github.com/google/pprof, proto/profile.proto.
PPROF = {
    "Profile": "sample_type=1 sample=2 mapping=3 location=4 function=5 string_table=6 drop_frames=7 "
               "keep_frames=8 time_nanos=9 duration_nanos=10 period_type=11 period=12 comment=13 "
               "default_sample_type=14 doc_url=15",
    "ValueType": "type=1 unit=2",
    "Sample": "location_id=1 value=2 label=3",
    "Label": "key=1 str=2 num=3 num_unit=4",
    "Mapping": "id=1 memory_start=2 memory_limit=3 file_offset=4 filename=5 build_id=6 "
               "has_functions=7 has_filenames=8 has_line_numbers=9 has_inline_frames=10",
    "Location": "id=1 mapping_id=2 address=3 line=4 is_folded=5",
    "Line": "function_id=1 line=2 column=3",
    "Function": "id=1 name=2 system_name=3 filename=4 start_line=5",
}

# Neither does Pyroscope. Source: github.com/grafana/pyroscope, api/push/v1/push.proto and types/v1.
PUSH = {
    "PushRequest": "series=1", "PushResponse": "", "RawProfileSeries": "labels=1 samples=2",
    "LabelPair": "name=1 value=2", "RawSample": "raw_profile=1 ID=2",
}


# Source: api/settings/v1/setting.proto of the same repository.
SETTINGS = {
    "GetSettingsRequest": "", "GetSettingsResponse": "settings=1", "Setting": "name=1 value=2 modifiedAt=3",
}


def compile_ours(folder):
    """Returns Braid's files as a FileDescriptorSet, from the compiler that the build uses."""
    out = folder / "ours.bin"
    files = sorted(str(f.relative_to(PROTO)) for f in PROTO.rglob("*.proto"))
    subprocess.run(["protoc-c", "-I", str(PROTO), f"--descriptor_set_out={out}", *files],
                   check=True, cwd=PROTO)
    found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {f.name: f for f in found.file}


def resolved(files):
    """Returns descriptors in a separate pool, which computes defaults (packed, JSON names)."""
    pool = descriptor_pool.DescriptorPool()
    pending = dict(files)
    while pending:
        ready = [n for n, f in pending.items() if not set(f.dependency) & set(pending)]
        for name in ready:
            pool.AddSerializedFile(pending.pop(name).SerializeToString())
    return {name: pool.FindFileByName(name) for name in files}


def describe_field(f):
    return {
        "number": f.number,
        "type": descriptor_pb2.FieldDescriptorProto.Type.Name(f.type),
        "repeated": f.is_repeated,
        "packed": f.is_packed,
        "presence": f.has_presence,
        "json name": f.json_name,
        "type name": f.message_type.full_name if f.message_type
        else f.enum_type.full_name if f.enum_type else None,
        "oneof": f.containing_oneof.name if f.containing_oneof else None,
    }


def describe(file):
    """Returns everything that affects the wire format, by full name."""
    out = {"package": file.package}
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    out["syntax"] = proto.syntax

    def enum(e):
        out[f"enum {e.full_name}"] = {v.name: v.number for v in e.values}

    def message(m):
        out[f"message {m.full_name}"] = {f.name: describe_field(f) for f in m.fields}
        for nested in m.nested_types:
            message(nested)
        for nested in m.enum_types:
            enum(nested)

    for m in file.message_types_by_name.values():
        message(m)
    for e in file.enum_types_by_name.values():
        enum(e)
    for s in file.services_by_name.values():
        out[f"service {s.full_name}"] = {
            m.name: (m.input_type.full_name, m.output_type.full_name,
                     m.client_streaming, m.server_streaming) for m in s.methods}
    return out


def official(name):
    module = OFFICIAL[name][1]
    if not module.startswith("google."):
        module = "opentelemetry.proto." + module
    return importlib.import_module(module + "_pb2").DESCRIPTOR


def differences(ours, theirs, extent):
    if extent == "some":
        theirs = {k: v for k, v in theirs.items() if k in ours}
    return {k: (ours.get(k), theirs.get(k)) for k in ours.keys() | theirs.keys()
            if ours.get(k) != theirs.get(k)}


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return compile_ours(tmp_path_factory.mktemp("descriptors"))


@pytest.fixture(scope="module")
def ours(raw):
    return resolved(raw)


def test_every_file_is_compared(raw):
    """querier.v1 is tested with Pyroscope's client (tests/e2e/test_query_profiles.py), which has
    separate descriptors."""
    assert set(raw) == set(OFFICIAL) | {"pprof/profile.proto", "push/v1/push.proto", "querier/v1/querier.proto",
                                    "settings/v1/setting.proto", "tempo/tempo.proto"}


@pytest.mark.parametrize("name", OFFICIAL)
def test_same_as_official(ours, name):
    assert differences(describe(ours[name]), describe(official(name)), OFFICIAL[name][0]) == {}


def test_profiles_use_the_numbering_of_1_10():
    sample = describe(official("opentelemetry/proto/profiles/v1development/profiles.proto"))[
        "message opentelemetry.proto.profiles.v1development.Sample"]
    assert {k: v["number"] for k, v in sample.items()} == {
        "stack_index": 1, "attribute_indices": 2, "link_index": 3, "values": 4,
        "timestamps_unix_nano": 5}


@pytest.mark.parametrize("name, package, messages", [("push/v1/push.proto", "push.v1", PUSH),
                                                     ("settings/v1/setting.proto", "settings.v1", SETTINGS)])
def test_pyroscope(ours, name, package, messages):
    file = ours[name]
    assert file.package == package
    assert {m.name: " ".join(f"{f.name}={f.number}" for f in m.fields)
            for m in file.message_types_by_name.values()} == messages


def test_tempo(ours):
    """On the wire a map is a list of its entries."""
    def fields(message):
        return {field.name: (field.number, field.type, field.is_repeated) for field in message.fields}
    found = {message.name: fields(message) for message in ours["tempo/tempo.proto"].message_types_by_name.values()}
    entries = {name: found.pop(name) for name in ("TagsEntry", "ServiceStatsEntry")}
    assert found == {name: fields(message.DESCRIPTOR) for name, message in tempopb.CLASSES.items()}
    for name, of in (("TagsEntry", "SearchRequest"), ("ServiceStatsEntry", "TraceSearchMetadata")):
        assert entries[name] == fields(tempopb.CLASSES[of].DESCRIPTOR.nested_types_by_name[name])


def test_pprof(ours):
    file = ours["pprof/profile.proto"]
    assert file.package == "perftools.profiles"
    found = {m.name: " ".join(f"{f.name}={f.number}" for f in
                              sorted(m.fields, key=lambda f: f.number))
             for m in file.message_types_by_name.values()}
    assert found == PPROF
    unsigned = {(m.name, f.name) for m in file.message_types_by_name.values() for f in m.fields
                if f.type == f.TYPE_UINT64}
    assert unsigned == {
        ("Sample", "location_id"), ("Mapping", "id"), ("Mapping", "memory_start"),
        ("Mapping", "memory_limit"), ("Mapping", "file_offset"), ("Location", "id"),
        ("Location", "mapping_id"), ("Location", "address"), ("Line", "function_id"),
        ("Function", "id")}
    repeated = {(m.name, f.name) for m in file.message_types_by_name.values() for f in m.fields
                if f.is_repeated}
    assert repeated == {
        ("Profile", "sample_type"), ("Profile", "sample"), ("Profile", "mapping"),
        ("Profile", "location"), ("Profile", "function"), ("Profile", "string_table"),
        ("Profile", "comment"), ("Sample", "location_id"), ("Sample", "value"),
        ("Sample", "label"), ("Location", "line")}


TRACE = "opentelemetry/proto/trace/v1/trace.proto"
COMMON = "opentelemetry/proto/common/v1/common.proto"
PROFILES = "opentelemetry/proto/profiles/v1development/profiles.proto"
SERVICE = "opentelemetry/proto/collector/trace/v1/trace_service.proto"


def change_number(f): message(f, "Span").field[0].number = 99
def change_name(f): message(f, "Span").field[0].name = "tracer_id"
def change_type(f): field(f, "Span", "flags").type = 13  # uint32
def change_label(f): field(f, "Span", "name").label = 3
def drop_field(f): del message(f, "Span").field[-1]
def drop_message(f): del f.message_type[0]
def leave_oneof(f): field(f, "AnyValue", "bool_value").ClearField("oneof_index")
def change_enum(f): message(f, "Status").enum_type[0].value[1].number = 7
def change_method(f): f.service[0].method[0].name = "Send"
def change_stream(f): f.service[0].method[0].server_streaming = True


def add_field(f):
    message(f, "Span").field.add(name="extra", number=500, type=9, label=1)


def unpack(f):
    field(f, "Sample", "values").options.packed = False


def message(file, name):
    return next(m for m in file.message_type if m.name == name)


def field(file, name, field_name):
    return next(f for f in message(file, name).field if f.name == field_name)


@pytest.mark.parametrize("change, name", [
    (change_number, TRACE), (change_name, TRACE), (change_type, TRACE), (change_label, TRACE),
    (drop_field, TRACE), (drop_message, TRACE), (add_field, TRACE), (unpack, PROFILES),
    (leave_oneof, COMMON), (change_enum, TRACE), (change_method, SERVICE), (change_stream, SERVICE)])
def test_a_difference_is_detected(raw, change, name):
    files = {n: descriptor_pb2.FileDescriptorProto.FromString(f.SerializeToString())
             for n, f in raw.items() if not n.startswith(("pprof", "querier", "google"))}
    change(files[name])
    changed = resolved(files)[name]
    assert differences(describe(changed), describe(official(name)), "all") != {}
