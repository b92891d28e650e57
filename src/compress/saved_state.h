// A file with the state of an interrupted compression or decompression, from which the same command continues.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compress/context_mixer.h"

namespace some {

struct SavedState {
  std::vector<StateField> fields;     // of fixed sizes, known before they are restored
  std::vector<std::string*> strings;  // of any size
};

// Writes the state atomically. key: what the state belongs to.
void save_state(const std::string& path, std::uint64_t key, const SavedState& state);
// Restores it; false if there is no such file. bad_input if the file belongs to something else (compressed_mismatch) or
// is damaged (compressed_invalid).
bool restore_state(const std::string& path, std::uint64_t key, const SavedState& state);

}  // namespace some
