#include "fuzz/fuzz.h"
#include "memory/memory_file.h"
#include "runtime/context.h"

namespace some::fuzz {
namespace {

class MemoryTarget : public Target {
 public:
  explicit MemoryTarget(const std::string& scratch) : ctx_(make_context("cpu", "fp32")) {
    MemorySettings settings;
    settings.slots = 5;
    settings.window = 4;
    settings.beta = {20, 80};
    settings.values = 2;
    Memory memory;
    memory.settings = settings;
    memory.store = make_store(*ctx_, settings, Tensor::zeros({3}, DType::f32));
    memory.model = memory.tokenizer = "0123456789abcdef";
    memory.texts = {{"a", {3, 4, 5, 6, 7}}, {"b", {8, 9}}};
    for (std::int64_t slot = 0; slot < 3; ++slot) {
      memory.store.values.data<std::int32_t>()[slot] = 4;
      memory.store.counts.data<float>()[slot] = memory.store.usage.data<float>()[slot] = 1;
      memory.store.entry_counts.data<float>()[slot] = 1;
      memory.store.keys.data<float>()[3 * slot + slot] = 1;
      memory.store.born.data<std::int64_t>()[slot] = memory.store.hit.data<std::int64_t>()[slot] =
          packed({slot % 2, 1});
    }
    memory.store.reach = 3;
    HistoryEntry read, merge, prune;
    read.reading = {0, 1, 5, 4, 2};
    merge.kind = HistoryEntry::Kind::merge;
    merge.settings = settings;
    merge.others = {read};
    prune.kind = HistoryEntry::Kind::prune;
    prune.min_count = 1;
    memory.history = {read, merge, prune};
    const std::string path = scratch + "/whole.memory";
    save_memory(memory, path);
    seed_ = read_whole(path);
  }
  std::string name() const override { return "memory"; }
  std::string origin() const override { return file_.path(); }
  std::string make(Dice& dice) override { return damage_safetensors(seed_, dice); }
  void read(const std::string& input) override {
    file_.set(input);
    const Memory memory = load_memory(*ctx_, file_.path());
    slots_in_use(memory);
  }

 private:
  std::unique_ptr<Context> ctx_;
  std::string seed_;
  MemoryFile file_;
};

}  // namespace

void add_memory_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder) {
  targets.push_back(std::make_unique<MemoryTarget>(scratch_folder));
}

}  // namespace some::fuzz
