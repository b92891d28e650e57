// State file of an interrupted compression or decompression, from which the same command continues.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compress/context_mixer.h"

namespace some {

struct SavedState {
  std::vector<StateField> fields;     // fields of fixed size, known before they are restored
  std::vector<std::string*> strings;  // fields of any size
};

// Writes the state atomically. key: identifies the input and settings that the state belongs to.
void save_state(const std::string& path, std::uint64_t key, const SavedState& state);
// Restores the state; returns false if the file does not exist. Throws bad_input if it belongs to another input
// (compressed_mismatch) or is damaged (compressed_invalid).
// A caller that finds an impossible value in a restored state calls state_damaged().
bool restore_state(const std::string& path, std::uint64_t key, const SavedState& state);
[[noreturn]] void state_damaged(const std::string& path);

}  // namespace some
