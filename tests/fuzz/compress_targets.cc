#include "compress/compress.h"
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

}  // namespace

void add_compress_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string&) {
  targets.push_back(std::make_unique<CompressedTarget>());
}

}  // namespace some::fuzz
