# SPDX-License-Identifier: Apache-2.0
"""Profiles with every dictionary reference resolved, so that two requests can be compared whatever
their tables contain."""

from otlp import value_of


class View:
    def __init__(self, request):
        self._request, self._tables, self._frames = request, request.dictionary, {}

    def _string(self, index):
        return self._tables.string_table[index]

    def _value(self, any_value):
        kind = any_value.WhichOneof("value")
        if kind == "string_value_strindex":
            return self._string(any_value.string_value_strindex)
        if kind == "array_value":
            return [self._value(each) for each in any_value.array_value.values]
        if kind == "kvlist_value":
            return self._pairs(any_value.kvlist_value.values)
        return value_of(any_value)

    def _pairs(self, pairs):
        return {
            pair.key or self._string(pair.key_strindex): self._value(pair.value)
            for pair in pairs
        }

    def _attributes(self, indices):
        return {
            self._string(entry.key_strindex): (self._value(entry.value),
                                               self._string(entry.unit_strindex))
            for entry in (self._tables.attribute_table[i] for i in indices)
        }

    def _type(self, value_type):
        return self._string(value_type.type_strindex), self._string(value_type.unit_strindex)

    def _frame(self, index):
        location = self._tables.location_table[index]
        mapping = self._tables.mapping_table[location.mapping_index]
        lines = []
        for line in location.lines:
            function = self._tables.function_table[line.function_index]
            lines.append(
                (self._string(function.name_strindex), self._string(function.system_name_strindex),
                 self._string(function.filename_strindex), function.start_line, line.line,
                 line.column))
        return {"address": location.address, "lines": lines,
                "attributes": self._attributes(location.attribute_indices),
                "mapping": (mapping.memory_start, mapping.memory_limit, mapping.file_offset,
                            self._string(mapping.filename_strindex))}

    def _link(self, index):
        link = self._tables.link_table[index] if index else None
        return (link.trace_id.hex(), link.span_id.hex()) if link else None

    def _sample(self, sample):
        stack = self._tables.stack_table[sample.stack_index]
        for i in stack.location_indices:
            if i not in self._frames:  # samples share them
                self._frames[i] = self._frame(i)
        return {"frames": [self._frames[i] for i in stack.location_indices],
                "attributes": self._attributes(sample.attribute_indices),
                "link": self._link(sample.link_index), "values": list(sample.values),
                "timestamps": list(sample.timestamps_unix_nano)}

    def samples(self):
        """Returns one dict per sample, with all its attributes and those of its parents."""
        for resource in self._request.resource_profiles:
            for scope in resource.scope_profiles:
                for profile in scope.profiles:
                    common = {
                        "resource": self._pairs(resource.resource.attributes),
                        "scope": (scope.scope.name, self._pairs(scope.scope.attributes)),
                        "type": self._type(profile.sample_type), "period": profile.period,
                        "period_type": self._type(profile.period_type),
                        "profile": (profile.time_unix_nano, profile.duration_nano,
                                    profile.profile_id.hex(),
                                    self._attributes(profile.attribute_indices))
                    }
                    for sample in profile.samples:
                        yield {**common, **self._sample(sample)}


def samples(*requests):
    """Returns all samples of the requests in an order that does not depend on how they were split."""
    return sorted((sample for request in requests for sample in View(request).samples()), key=repr)
