// Names of version 0.2 that have changed since, for reading what it wrote: settings, their values, metrics, and
// tensors. This table is the only place that knows them; everything else uses the current names.
#pragma once

#include <string>
#include <string_view>

#include "core/files/json.h"

namespace some {

// The current name of a setting, "model.look_back" -> "model.conv"; the name itself if it has not changed.
std::string current_setting(std::string_view name);
// The current word for a value of a setting (by its current name), "random" of some.routing -> "hash".
std::string current_value(std::string_view setting, std::string_view value);
// A copy of an object whose keys are settings of one table, with the current names: {"match": 0.8} of memory ->
// {"threshold": 0.8}.
JsonObject with_current_settings(const JsonObject& object, std::string_view table);
// The current name of a key of a line of metrics.jsonl or of a memory's header, or the name that version 0.2 wrote,
// whichever the object has.
std::string key_in(const JsonObject& object, std::string_view name);
// The current name of a tensor of a checkpoint or fixture, "layers.0.readin.weight" -> "layers.0.input_proj.weight".
std::string current_tensor(std::string_view name);
// The reverse: the name that a tensor had in version 0.2. Initial values are drawn from random streams of these names
// and memories are bound to models by them, so that neither changes with a name.
std::string first_tensor_name(std::string_view name);

}  // namespace some
