# SPDX-License-Identifier: Apache-2.0
"""Reads pprofs by their documentation, independently of Braid's code. Source:
github.com/google/pprof, proto/profile.proto."""

import collections
import gzip

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Message: its fields as type name=number; * means repeated.
_PPROF = {
    "Profile": "ValueType* sample_type=1, Sample* sample=2, Mapping* mapping=3, Location* location=4, "
               "Function* function=5, string* string_table=6, int64 drop_frames=7, "
               "int64 keep_frames=8, int64 time_nanos=9, int64 duration_nanos=10, "
               "ValueType period_type=11, int64 period=12, int64* comment=13, "
               "int64 default_sample_type=14, int64 doc_url=15",
    "ValueType": "int64 type=1, int64 unit=2",
    "Sample": "uint64* location_id=1, int64* value=2, Label* label=3",
    "Label": "int64 key=1, int64 str=2, int64 num=3, int64 num_unit=4",
    "Mapping": "uint64 id=1, uint64 memory_start=2, uint64 memory_limit=3, uint64 file_offset=4, "
               "int64 filename=5, int64 build_id=6, bool has_functions=7, bool has_filenames=8, "
               "bool has_line_numbers=9, bool has_inline_frames=10",
    "Location": "uint64 id=1, uint64 mapping_id=2, uint64 address=3, Line* line=4, bool is_folded=5",
    "Line": "uint64 function_id=1, int64 line=2, int64 column=3",
    "Function": "uint64 id=1, int64 name=2, int64 system_name=3, int64 filename=4, int64 start_line=5",
}


def messages(package, schema):
    """Returns {name: class} of messages described as above."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package,
                                              syntax="proto3")
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", ") if fields else ():
            kind, rest = field.split(" ")
            field_name, number = rest.split("=")
            of, repeated = kind.rstrip("*"), kind.endswith("*")
            added = message.field.add(
                name=field_name, number=int(number),
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL)
            if of in schema:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{package}.{of}"
            else:
                added.type = getattr(kinds, f"TYPE_{of.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
            for name in schema}


_CLASSES = messages("pprof_reader", _PPROF)
Profile = _CLASSES["Profile"]

# One pprof sample and one of its types. labels: sorted (key, text) or (key, number, unit).
Sample = collections.namedtuple("Sample", "type unit stack value labels")


def parse(data):
    """Parses a Profile from plain or gzip'd bytes, and checks that all its references exist."""
    profile = Profile.FromString(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    check(profile)
    return profile


def check(profile):
    """Checks the conditions of google/pprof's CheckValid, and that ids are unique."""
    strings = profile.string_table
    assert strings and strings[0] == "", "the first string is not empty"
    assert len(profile.sample_type) > 0
    mappings = {each.id for each in profile.mapping}
    functions = {each.id for each in profile.function}
    locations = {each.id for each in profile.location}
    for ids, table in ((mappings, profile.mapping), (functions, profile.function),
                       (locations, profile.location)):
        assert len(ids) == len(table) and 0 not in ids
    for each in profile.location:
        assert each.mapping_id == 0 or each.mapping_id in mappings
        assert all(line.function_id in functions for line in each.line)
    for each in profile.sample:
        assert len(each.value) == len(profile.sample_type)
        assert all(location in locations for location in each.location_id)
        for label in each.label:
            assert strings[label.key]
            assert not (label.str and label.num)
            _ = strings[label.str], strings[label.num_unit]


def frames(profile):
    """Returns {location id: ((function, file, line) ...)}, innermost first."""
    strings, functions = profile.string_table, {each.id: each for each in profile.function}

    def frame(line):
        function = functions[line.function_id]
        return strings[function.name], strings[function.filename], line.line
    return {each.id: tuple(map(frame, each.line)) or (("", "", each.address), )
            for each in profile.location}


def labels_of(profile, sample):
    strings = profile.string_table
    return tuple(sorted(
        (strings[each.key], strings[each.str]) if each.str or not (each.num or each.num_unit) else
        (strings[each.key], each.num, strings[each.num_unit]) for each in sample.label))


def samples(profile):
    """Returns a multiset (Counter) of Sample: its value is how often each occurs."""
    strings, found = profile.string_table, frames(profile)
    many = collections.Counter()
    for sample in profile.sample:
        stack = tuple(frame for each in sample.location_id for frame in found[each])
        labels = labels_of(profile, sample)
        for kind, value in zip(profile.sample_type, sample.value):
            many[Sample(strings[kind.type], strings[kind.unit], stack, value, labels)] += 1
    return many


def types(profile):
    """Returns [(type, unit)], (period type, unit), period, default type."""
    strings = profile.string_table
    return ([(strings[each.type], strings[each.unit]) for each in profile.sample_type],
            (strings[profile.period_type.type], strings[profile.period_type.unit]),
            profile.period, strings[profile.default_sample_type])
