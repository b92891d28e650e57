#include "compress/saved_state.h"

#include <cstring>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"

namespace some {

namespace {

constexpr std::string_view state_magic = "\x89SoMEzs\n";

std::uint64_t combined(std::uint64_t before, const void* data, std::size_t bytes) {
  return hash_bytes(data, bytes, before);
}

}  // namespace

void save_state(const std::string& path, std::uint64_t key, const SavedState& state) {
  write_output_file(path, [&](const ByteSink& sink) {
    std::uint64_t hash = 0;
    const auto write = [&](const void* data, std::size_t bytes) {
      hash = combined(hash, data, bytes);
      sink(data, bytes);
    };
    const auto number = [&](std::uint64_t value) { write(&value, sizeof(value)); };
    write(state_magic.data(), state_magic.size());
    number(key);
    number(state.fields.size());
    for (const std::string* one : state.strings) number(one->size());
    for (const StateField& field : state.fields) number(field.bytes);
    for (const StateField& field : state.fields) write(field.data, field.bytes);
    for (const std::string* one : state.strings) write(one->data(), one->size());
    const std::uint64_t all = hash;
    sink(&all, sizeof(all));
  });
}

void state_damaged(const std::string& path) {
  bad_input(Code::compressed_invalid, "{}: the state is damaged or incomplete; remove the file to start over", path);
}

bool restore_state(const std::string& path, std::uint64_t key, const SavedState& state) {
  if (!exists_path(path)) return false;
  const MappedFile file = map_file(path);
  const auto damaged = [&] { state_damaged(path); };
  std::size_t at = 0;
  std::uint64_t hash = 0;
  const auto read = [&](void* to, std::size_t bytes) {
    if (bytes > file.size - at) damaged();
    std::memcpy(to, file.data + at, bytes);
    hash = combined(hash, to, bytes);
    at += bytes;
  };
  const auto number = [&] {
    std::uint64_t value = 0;
    read(&value, sizeof(value));
    return value;
  };
  char found[state_magic.size()];
  read(found, sizeof(found));
  if (std::string_view(found, sizeof(found)) != state_magic)
    bad_input(Code::compressed_invalid, "{} is not a state file of 'some compress'; use another --state FILE", path);
  if (number() != key)
    bad_input(Code::compressed_mismatch,
              "{}: the state belongs to another text, run or setting; remove the file to start over, or use another "
              "--state FILE",
              path);
  if (number() != state.fields.size()) damaged();
  std::vector<std::uint64_t> sizes;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < state.strings.size(); ++i) {
    sizes.push_back(number());
    if (sizes.back() > file.size) damaged();
    all += sizes.back();
  }
  for (const StateField& field : state.fields) {
    if (number() != field.bytes) damaged();
    all += field.bytes;
  }
  if (all + sizeof(hash) != file.size - at) damaged();
  for (const StateField& field : state.fields) read(field.data, field.bytes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    state.strings[i]->resize(sizes[i]);
    read(state.strings[i]->data(), sizes[i]);
  }
  const std::uint64_t wanted = hash;
  if (number() != wanted) damaged();
  return true;
}

}  // namespace some
