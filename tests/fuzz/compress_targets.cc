#include <algorithm>
#include <cstring>

#include "compress/compress.h"
#include "compress/saved_state.h"
#include "core/files/files.h"
#include "fuzz/fuzz.h"

namespace some::fuzz {
namespace {

// Compressed files that need no model. Half of the inputs have correct checksums, so that the decoder reads damaged
// data. A length beyond that of the seed is restored, because decoding takes time in proportion to it.
class CompressedTarget : public Target {
 public:
  CompressedTarget() {
    CompressReport report;
    std::string text = "the cat sat on the mat, the cat saw \xFF\xC3\xA9 ";
    seeds_.push_back(compress_text(nullptr, text, {.parts = 2}, report));
    for (int i = 0; i < 5; ++i) text += text;
    seeds_.push_back(compress_text(nullptr, text, {.parts = 2}, report));
  }
  std::string name() const override { return "compressed"; }
  std::string origin() const override { return "a file"; }
  std::string make(Dice& dice) override {
    const std::string& seed = seeds_[dice.one_in(64) ? 1 : 0];  // decoding takes time in proportion to the length
    if (dice.one_in(2)) {
      std::string bytes = seed;
      damage_bytes(bytes, dice);
      return bytes;
    }
    CompressedFile file = parse_compressed(seed, origin());
    std::string payload(file.payload);
    damage_bytes(payload, dice);
    if (dice.one_in(3)) file.header.parts = {0, dice.below(file.header.length + 1), file.header.length};
    if (dice.one_in(3)) file.header.checksum ^= std::uint64_t{1} << dice.below(64);
    if (dice.one_in(4)) {
      file.header.length = dice.below(file.header.length + 1);
      file.header.parts = {0, file.header.length};
    }
    return write_compressed(file.header, payload);
  }
  void read(const std::string& input) override {
    CompressReport report;
    decompress_text(nullptr, input, origin(), {}, report);
  }

 private:
  std::vector<std::string> seeds_;
};

// The state of an interrupted compression. Half of the inputs have the right hash at their end.
class CompressStateTarget : public Target {
 public:
  explicit CompressStateTarget(const std::string& scratch) {
    text_ = "what was coded so far";
    save_state(scratch + "/state", key, state());
    seed_ = read_whole(scratch + "/state");
  }
  std::string name() const override { return "compress-state"; }
  std::string origin() const override { return file_.path(); }
  std::string make(Dice& dice) override {
    std::string bytes = seed_;
    damage_bytes(bytes, dice);
    if (bytes.size() > 2 * sizeof(std::uint64_t) && dice.one_in(2)) {
      const std::uint64_t hash = hash_of(std::string_view(bytes).substr(0, bytes.size() - sizeof(std::uint64_t)));
      std::memcpy(bytes.data() + bytes.size() - sizeof(hash), &hash, sizeof(hash));
    }
    return bytes;
  }
  void read(const std::string& input) override {
    file_.set(input);
    if (!restore_state(file_.path(), key, state())) throw std::logic_error("a file that is there was not found");
    if (text_.size() > input.size()) throw std::logic_error("a text that is longer than its file");
  }

 private:
  static constexpr std::uint64_t key = 7;
  SavedState state() {
    return {{{"numbers", numbers_, sizeof(numbers_)}, {"place", &place_, sizeof(place_)}}, {&text_, &memory_}};
  }
  // As the file's own: a hash of each part, begun with that of the part before it.
  static std::uint64_t hash_of(std::string_view bytes) {
    std::uint64_t hash = 0;
    const std::size_t parts[] = {8, 8, 8, 8, 8, 8, 8, sizeof(numbers_), sizeof(place_)};
    for (const std::size_t part : parts) {
      const std::size_t size = std::min(part, bytes.size());
      hash = hash_bytes(bytes.data(), size, hash);
      bytes.remove_prefix(size);
    }
    hash = hash_bytes(bytes.data(), bytes.size(), hash);
    return hash_bytes(bytes.data(), 0, hash);
  }

  std::uint32_t numbers_[24] = {};
  std::uint64_t place_ = 3;
  std::string text_, memory_, seed_;
  MemoryFile file_;
};

}  // namespace

void add_compress_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder) {
  targets.push_back(std::make_unique<CompressedTarget>());
  targets.push_back(std::make_unique<CompressStateTarget>(scratch_folder));
}

}  // namespace some::fuzz
