#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/files/files.h"
#include "data/token_file.h"
#include "fuzz/fuzz.h"
#include "runs/event_file.h"
#include "tensor/safetensors.h"

namespace some::fuzz {
namespace {

namespace fs = std::filesystem;

class SafetensorsTarget : public Target {
 public:
  explicit SafetensorsTarget(const std::string& folder) {
    const std::string path = folder + "/seed.safetensors";
    Tensor wide = Tensor::zeros({2, 3}, DType::f64), narrow = Tensor::zeros({4}, DType::bf16);
    write_safetensors(path,
                      {{"wide", wide},
                       {"narrow", narrow},
                       {"none", Tensor::zeros({0, 7}, DType::i32)},
                       {"count", Tensor::zeros({}, DType::i64)}},
                      {{"state", R"({"step": 3, "best": 0.5})"}});
    seed_ = read_whole(path);
  }
  std::string name() const override { return "safetensors"; }
  std::string origin() const override { return file_.path(); }
  std::string make(Dice& dice) override { return damage_safetensors(seed_, dice); }
  void read(const std::string& input) override {
    file_.set(input);
    const SafetensorsFile opened = SafetensorsFile::open(file_.path());
    for (const std::string& tensor : opened.names()) {
      if (opened.load(tensor).shape() != opened.shape(tensor)) throw std::logic_error("a tensor has two shapes");
    }
  }

 private:
  std::string seed_;
  MemoryFile file_;
};

class TokenCacheTarget : public Target {
 public:
  TokenCacheTarget() {
    TokenWriter writer(
        [&](const void* bytes, std::size_t size) { seed_.append(static_cast<const char*>(bytes), size); }, key_, 100);
    for (int story = 0; story < 5; ++story) {
      std::vector<std::int32_t> ids;
      for (int i = 0; i < 3 * story + 1; ++i) ids.push_back(i + story);
      // The last document stores its lengths: one differs from those of the others.
      std::vector<std::uint32_t> lengths(ids.size(), 2);
      if (story == 4) lengths[0] = 3;
      writer.add(ids, lengths, static_cast<std::int64_t>(2 * ids.size()));
    }
    writer.finish();
  }
  std::string name() const override { return "token-cache"; }
  std::string origin() const override { return file_.path(); }
  std::string make(Dice& dice) override {
    std::string image = seed_;
    const std::size_t tail = std::min<std::size_t>(image.size(), 80 + 40 + 5 * 32);
    if (dice.one_in(2)) {  // the table and what follows it
      std::string end = image.substr(image.size() - tail);
      damage_bytes(end, dice);
      image = image.substr(0, image.size() - tail) + end;
    } else {
      damage_bytes(image, dice);
    }
    // A correct checksum passes the first check.
    if (!dice.one_in(4) && image.size() >= sizeof(std::uint64_t)) {
      const std::uint64_t sum = checksum_of(image.data(), image.size() - sizeof sum);
      std::memcpy(image.data() + image.size() - sizeof sum, &sum, sizeof sum);
    }
    return image;
  }
  void read(const std::string& input) override {
    file_.set(input);
    std::string problem;
    TokenData tokens;
    tokens.impl = open_token_image(map_file(file_.path()), key_, &problem);
    if (!tokens.impl) bad_input(Code::token_cache_damaged, "{}: {}", file_.path(), problem);
    std::int64_t sum = 0;
    std::vector<std::int64_t> documents;
    for (std::int64_t story = 0; story < tokens.documents(); ++story) {
      for (const std::int32_t id : tokens.ids(story)) sum += id & 1;
      for (const std::uint16_t length : tokens.bytes(story)) sum += length & 1;
      documents.push_back(story);
    }
    BatchOptions options;
    options.seq_len = 8;
    make_batch(tokens, documents, options);
    if (sum < 0) throw std::logic_error("a sum of bits is negative");
  }

 private:
  const TokenKey key_{1, 2, 1};
  std::string seed_;
  MemoryFile file_;
};

// Metrics lines become a TensorBoard event file, whose records must be valid whatever the lines are.
class EventFileTarget : public Target {
 public:
  explicit EventFileTarget(const std::string& folder) : path_(folder + "/events") {}
  std::string name() const override { return "event-file"; }
  std::string origin() const override { return file_.path(); }
  std::string make(Dice& dice) override {
    std::string text =
        R"({"kind":"train","step":50,"epoch":0.5,"loss":2.5,"lr":0.001,"layers":[{"gini":0.1,"entropy":3.2}]}
{"kind":"eval","step":100,"loss":2.25,"layers":[{"layer":0,"count":{"gini":0.1,"experts_used":8},"key_moved":{"mean":0.1}}],"middle_layer":0}
{"kind":"epoch","step":100,"epoch":1,"train_loss":2.4}
)";
    damage_text(text, dice, {"{", "}", "[", "\"kind\":", "\"layers\":", "null", "-1", "1e300", "18446744073709551616"});
    return text;
  }
  void read(const std::string& input) override {
    file_.set(input);
    const EventFile events(path_, file_.path(), path_ + ".no-samples");
    const std::string bytes = read_whole(path_);
    std::size_t at = 0, records = 0;
    while (at < bytes.size()) {
      std::uint64_t size = 0;
      if (bytes.size() - at < 16) throw std::logic_error("a record is cut off");
      std::memcpy(&size, bytes.data() + at, 8);
      if (size > bytes.size() - at - 16) throw std::logic_error("a record is longer than the file");
      std::uint32_t sum = 0;
      std::memcpy(&sum, bytes.data() + at + 12 + size, 4);
      const std::uint32_t plain = crc32c({bytes.data() + at + 12, size});
      if (((plain >> 15) | (plain << 17)) + 0xa282ead8u != sum) throw std::logic_error("a check sum is wrong");
      at += 16 + size;
      ++records;
    }
    if (records < 4) bad_input(Code::file_damaged, "{}: a line was left out", file_.path());
  }

 private:
  const std::string path_;
  MemoryFile file_;
};

}  // namespace

void add_file_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder) {
  targets.push_back(std::make_unique<SafetensorsTarget>(scratch_folder));
  targets.push_back(std::make_unique<TokenCacheTarget>());
  targets.push_back(std::make_unique<EventFileTarget>(scratch_folder));
}

}  // namespace some::fuzz
