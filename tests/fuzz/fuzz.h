// Fuzzing of everything that reads files: damaged inputs are made from good ones and given to the reader. A reader may
// take an input or refuse it with one sentence that names the file; anything else (a signal, another exception, a
// finding of the sanitizers, ten seconds without an answer) is a fault.
//
// Input number n of a target is a pure function of (seed, n), so that a fault is found again from its number.
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

// A file without a disk: readers are given its path.
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
  // A damaged input. What a target knows of its format (lengths, checksums) is set right in some of them, so that the
  // damage gets past the first check.
  virtual std::string make(Dice& dice) = 0;
  // Throws what the reader throws. `origin` is what a message must name.
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

// Changes that know nothing of a format: bits, bytes, pieces left out, doubled, moved, cut off, and numbers that are
// often wrong.
void damage_bytes(std::string& bytes, Dice& dice);
// Changes that know lines and words: for TOML, JSON lines and plain text. `words` are put in here and there.
void damage_text(std::string& text, Dice& dice, const std::vector<std::string>& words);
// Changes of a JSON tree that stays JSON.
void damage_json(nlohmann::json& tree, Dice& dice);
nlohmann::json odd_value(Dice& dice);

// A safetensors file in its parts.
struct FileParts {
  nlohmann::json header;
  std::string data;
};
FileParts take_apart(const std::string& file);
std::string put_together(const FileParts& parts);
// Header, shapes, offsets, values and checksums are changed; often the file stays sound, so that only what it says is
// wrong.
std::string damage_safetensors(const std::string& file, Dice& dice);
std::string read_whole(const std::string& path);
// JSON as text again, whatever the damage left in its strings.
std::string written(const nlohmann::json& tree);
// A sound tokenizer of a few hundred tokens.
nlohmann::json small_tokenizer();

}  // namespace some::fuzz
