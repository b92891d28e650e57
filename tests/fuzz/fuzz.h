// Fuzzing of everything that reads files: damages valid inputs and passes them to the reader. A reader may accept an
// input, or reject it with one sentence that names the file. Anything else (a signal, another exception, a sanitizer
// report, ten seconds without a result) is a fault.
//
// Input number n of a target is a pure function of (seed, n), so a fault can be reproduced from its number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace some::fuzz {

class Dice {
 public:
  Dice(std::uint64_t seed, std::string_view name, std::uint64_t number);
  std::uint64_t next();
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : next() % limit; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <typename List>
  auto& of(List& list) {
    return list[below(std::size(list))];
  }

 private:
  std::uint64_t state_;
};

// A file in memory: readers receive its path.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  void set(std::string_view bytes);
  const std::string& path() const { return path_; }

 private:
  int descriptor_ = -1;
  std::string path_;
};

struct Target {
  virtual ~Target() = default;
  virtual std::string name() const = 0;
  // A damaged input. Some inputs have corrected lengths and checksums, so that the damage passes the first check.
  virtual std::string make(Dice& dice) = 0;
  // Rethrows the reader's exception. A message must name `origin`.
  virtual void read(const std::string& input) = 0;
  virtual std::string origin() const = 0;
};

std::vector<std::unique_ptr<Target>> all_targets(const std::string& scratch_folder);
void add_text_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder);
void add_file_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder);
void add_run_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder);
void add_memory_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder);
void add_compress_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder);
void add_exchange_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder);
void add_board_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder);
void add_serve_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder);

// Mutations without knowledge of a format: bits, bytes, pieces removed, duplicated, moved or truncated, and numbers
// that are often invalid.
void damage_bytes(std::string& bytes, Dice& dice);
// Mutations of lines and words, for TOML, JSON lines and plain text. Inserts `words` in some places.
void damage_text(std::string& text, Dice& dice, const std::vector<std::string>& words);
// Mutations of a JSON tree that remains JSON.
void damage_json(nlohmann::json& tree, Dice& dice);
nlohmann::json odd_value(Dice& dice);

// A safetensors file split into its parts.
struct FileParts {
  nlohmann::json header;
  std::string data;
};
FileParts take_apart(const std::string& file);
std::string put_together(const FileParts& parts);
// Mutates header, shapes, offsets, values and checksums; often the file stays valid, so that only its contents are
// wrong.
std::string damage_safetensors(const std::string& file, Dice& dice);
std::string read_whole(const std::string& path);
// Folder of the program's sources: as compiled in, or $SOME_SOURCE_DIR, for fuzzing on another machine.
std::string source_folder();
// Serializes JSON, even if the damage left invalid strings.
std::string written(const nlohmann::json& tree);
// Returns a valid tokenizer of a few dozen tokens.
nlohmann::json small_tokenizer();

}  // namespace some::fuzz
