// The file of a memory: what it keeps, which model it belongs to, and links.
#include "memory/memory_file.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "memory/reader.h"
#include "memory_fixture.h"
#include "tensor/safetensors.h"

namespace some::test {
namespace {

namespace fs = std::filesystem;

TEST(MemoryFile, KnowsWherePartsEnd) {
  const Folder folder;
  Fixture fixture;
  MemorySettings settings = small_settings();
  settings.partitions = 6;
  Memory memory = fixture.memory(settings);
  learn_text(*fixture.model, memory, "a", Fixture::words(100, 5), 100, {});
  memory.store.reach -= 1;
  save_memory(memory, folder.file("m"));
  EXPECT_ERROR(load_memory(*fixture.ctx, folder.file("m")), Code::memory_invalid, folder.file("m"));
}

TEST(MemoryFile, BelongsToItsModel) {
  const Folder folder;
  Fixture fixture, stranger(9);
  Memory memory = fixture.memory(small_settings());
  learn_text(*fixture.model, memory, "a", Fixture::words(100, 5), 100, {});
  save_memory(memory, folder.file("m"));
  const Memory loaded = load_memory(*stranger.ctx, folder.file("m"));
  EXPECT_ERROR(require_model(loaded, folder.file("m"), *stranger.model, stranger.tokenizer), Code::memory_mismatch,
               folder.file("m"));
}

TEST(MemoryFile, ALinkLeadsToWhatIsWritten) {
  const Folder folder;
  fs::create_directories(folder.path / "disk");
  Fixture fixture;
  Memory memory = fixture.memory(small_settings());
  save_memory(memory, folder.file("disk/real"));
  fs::create_symlink("disk/real", folder.file("near"));
  fs::create_symlink("near", folder.file("m"));
  learn_text(*fixture.model, memory, "a", Fixture::words(100, 5), 100, {});
  MemorySaver keeper(folder.file("m"));
  keeper.save(memory);
  keeper.save(memory);
  EXPECT_TRUE(fs::is_symlink(folder.file("m")));
  EXPECT_TRUE(fs::is_symlink(folder.file("near")));
  EXPECT_TRUE(same(load_memory(*fixture.ctx, folder.file("disk/real")), memory));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path / "disk"), fs::directory_iterator()), 1);
  // A file written by another program through the link is detected too.
  save_memory(fixture.memory(small_settings()), folder.file("disk/real"));
  EXPECT_ERROR(keeper.save(memory), Code::memory_not_kept);
  // A dangling link is left unchanged: the disk may come back.
  fs::create_symlink("not mounted/memory", folder.file("away"));
  EXPECT_ERROR(save_memory(memory, folder.file("away")), Code::link_broken, folder.file("away"));
  EXPECT_TRUE(fs::is_symlink(folder.file("away")));
}

TEST(MemoryFile, TellsItsPrecisionAndItsFiles) {
  const Folder folder;
  Fixture fixture;
  Memory memory = fixture.memory(small_settings());
  memory.texts = {{"a", {1, 2}, "0123"}, {"b", {3}}};
  save_memory(memory, folder.file("m"));
  EXPECT_EQ(precision_of(folder.file("m")), Precision::fp32);
  EXPECT_EQ(load_memory(*fixture.ctx, folder.file("m")).texts[0].file, "0123");
  EXPECT_EQ(load_memory(*fixture.ctx, folder.file("m")).texts[1].file, "");
  const auto exact = make_context("cpu", "f64");
  save_memory(load_memory(*exact, folder.file("m")), folder.file("exact"));
  EXPECT_EQ(precision_of(folder.file("exact")), Precision::f64);
}

// Files written before slots could hold several tokens or be merged on eviction.
TEST(MemoryFile, OfAnOlderVersionHasOneTokenPerSlotAndDropsEvictedOnes) {
  MemorySettings settings = small_settings();
  settings.values = 1;
  settings.merge_evicted = false;
  nlohmann::json old = to_json(settings);
  old.erase("values");
  old.erase("merge_evicted");
  EXPECT_EQ(settings_from(JsonObject(old, "a memory")), settings);
  EXPECT_EQ(settings_from(JsonObject(to_json(small_settings()), "a memory")), small_settings());
}

// Files written before the follower of a context was a source of the mixture (format 2).
TEST(MemoryFile, OfAnOlderVersionHasNoFollowers) {
  const Folder folder;
  Fixture fixture;
  MemorySettings settings = small_settings();
  settings.contexts = 4;
  Memory memory = fixture.memory(settings);
  const std::vector<std::int32_t> text = Fixture::words(300, 5);
  learn_text(*fixture.model, memory, "a", text, 200, {});
  save_memory(memory, folder.file("m"));
  ContextMixture old(static_cast<int>(settings.beta.size()), 5, memory.contexts.vocabulary(), settings.switch_rate,
                     false);
  for (std::int32_t t = 0; t < 50; ++t)
    old.learn({t % 5, 1 + t % 3, t % 2 == 0, t % 7},
              std::vector<double>(index_of(old.sources()), 0.1 + 0.01 * (t % 9)));
  const SafetensorsFile file = SafetensorsFile::open(folder.file("m"));
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : file.names()) {
    Tensor one = file.load(name);
    if (name == "contexts.mixture") {
      const std::vector<double> state = old.state();
      one = Tensor::empty({std::ssize(state), 1}, DType::f64);
      std::copy(state.begin(), state.end(), one.data<double>());
    }
    tensors.emplace_back(name, one);
  }
  auto metadata = file.metadata();
  EXPECT_EQ(metadata.at("format"), "some memory 3");
  write_safetensors(folder.file("new"), tensors, metadata);
  EXPECT_ERROR(load_memory(*fixture.ctx, folder.file("new")), Code::memory_damaged, folder.file("new"));
  metadata["format"] = "some memory 2";
  write_safetensors(folder.file("old"), tensors, metadata);
  Memory loaded = load_memory(*fixture.ctx, folder.file("old"));
  std::vector<double> expected = old.general();
  expected.push_back(0);
  EXPECT_EQ(loaded.mixture.general(), expected);
  learn_text(*fixture.model, loaded, "a", text, 300, {});  // it continues as any other
  EXPECT_GT(loaded.mixture.general().back(), 0);
}

}  // namespace
}  // namespace some::test
