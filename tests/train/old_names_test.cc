// Run folders of version 0.2 can still be read: one table (core/old_names.h) contains the names that have changed
// since.
#include "core/old_names.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/files/files.h"
#include "expect_error.h"
#include "memory/memory_file.h"
#include "recipe/recipe.h"
#include "runs/run.h"
#include "temporary_folder.h"
#include "tensor/safetensors.h"
#include "train/remember.h"
#include "train/small_run.h"
#include "train/trainer.h"

namespace some {
namespace {

namespace fs = std::filesystem;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

// Rewrites a run's files with the names of version 0.2.
void make_old(const std::string& folder) {
  std::string config = read_file(folder + "/config.toml");
  for (const auto& [now, old] : {std::pair{"\noutput_proj = ", "\nreadout = "},
                                 {"\noutput_proj_init = ", "\nreadout_init = "},
                                 {"\ntoken_shift = ", "\nlisten = "},
                                 {"\ninput_proj = ", "\nreadin = "},
                                 {"\nconv = ", "\nlook_back = "},
                                 {"\ntrain_documents = ", "\ntrain_stories = "},
                                 {"\nvalid_documents = ", "\nvalid_stories = "},
                                 {"\nrouting = \"hash\"", "\nrouting = \"random\""},
                                 {"\nmodulation = \"additive\"", "\nmodulation = \"inside\""}})
    config = replaced(config, now, old);
  config = config.substr(0, config.find("\n# Identity of this run"));  // version 0.2 had none
  write_file_atomic(folder + "/config.toml", config);
  int renamed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder + "/checkpoints")) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file = SafetensorsFile::open(entry.path().string());
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const std::string& name : file.names()) {
      tensors.emplace_back(first_tensor_name(name), file.load(name));
      if (tensors.back().first != name) ++renamed;
    }
    std::map<std::string, std::string> metadata = file.metadata();
    metadata.erase("checksum");
    metadata.erase("checksums");
    for (const char* later : {"run", "tokenizer", "other_file"}) metadata.erase(later);
    write_safetensors(entry.path().string(), tensors, metadata);
  }
  EXPECT_GT(renamed, 0);
}

TEST(OldNames, ARunFolderOfVersion02IsEvaluatedAndResumed) {
  const std::vector<std::string> form = {
      "model.conv=2",       "some.output_proj=modulated", "some.modulation=additive", "some.output_proj_init=zero",
      "some.token_shift=2", "some.routing=hash"};
  TemporaryFolder folder;
  const std::string whole = folder / "whole", old = folder / "old";
  start_run(recipe(form), whole, {});
  start_run(recipe(form), old, stop_after(4));
  make_old(old);
  const OpenedRun opened = open_run(old, {});
  EXPECT_EQ(opened.recipe.model.conv, 2);
  EXPECT_EQ(opened.recipe.model.routing, RoutingKind::hash);
  EXPECT_EQ(opened.recipe.model.modulation, ModulationPlace::additive);
  resume_run(old, {}, {});
  expect_same_run(whole, old);
}

// Rewrites a memory's file and the [memory] table of its run with the names of version 0.2.
void make_old_memory(const std::string& folder) {
  const std::vector<std::pair<std::string, std::string>> renamed = {
      {"threshold", "match"},  {"beta", "sharpness"}, {"switch_rate", "share"},       {"merge_evicted", "inherit"},
      {"partitions", "parts"}, {"nprobe", "look"},    {"refinement_passes", "rounds"}};
  std::string config = read_file(folder + "/config.toml");
  const std::size_t table = config.find("\n[memory]");
  ASSERT_NE(table, std::string::npos);
  std::string settings = config.substr(table);
  const std::string path = folder + "/memory.safetensors";
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::map<std::string, std::string> metadata = file.metadata();
  metadata.erase("checksum");
  metadata.erase("checksums");
  std::string& header = metadata["memory"];
  for (const auto& [now, old] : renamed) {
    settings = replaced(settings, "\n" + now + " = ", "\n" + old + " = ");
    header = replaced(header, "\"" + now + "\":", "\"" + old + "\":");
  }
  header = replaced(header, "\"history\":", "\"deeds\":");
  header = replaced(header, "{\"refine\":", "{\"settle\":");
  write_file_atomic(folder + "/config.toml", config.substr(0, table) + settings);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : file.names()) {
    const std::string old = name == "centroids" ? "centres" : name == "entry_counts" ? "tallies" : name;
    tensors.emplace_back(old, file.load(name));
  }
  write_safetensors(path, tensors, metadata);
}

TEST(OldNames, AMemoryOfVersion02IsOpened) {
  TemporaryFolder folder;
  const std::string run = folder / "run", path = run + "/memory.safetensors";
  start_run(recipe({"memory.slots=64", "memory.window=8", "memory.threshold=0.5", "memory.beta=[10.0, 40.0]",
                    "memory.switch_rate=0.002", "memory.partitions=4", "memory.nprobe=2", "memory.values=3",
                    "memory.refinement_passes=1"}),
            run, {});
  OpenedRun before = open_run(run, {});
  const Memory written = open_memory(before, path);
  make_old_memory(run);
  OpenedRun after = open_run(run, {});
  EXPECT_EQ(after.recipe.memory, before.recipe.memory);
  const Memory read = open_memory(after, path);
  EXPECT_EQ(read.settings, written.settings);
  EXPECT_EQ(read.history, written.history);
  EXPECT_EQ(read_vector(read.store.centroids), read_vector(written.store.centroids));
  EXPECT_EQ(read_vector(read.store.entry_counts), read_vector(written.store.entry_counts));
  save_memory(read, folder / "again");
  EXPECT_EQ(SafetensorsFile::open(folder / "again").require_metadata("memory").find("deeds"), std::string::npos);
}

TEST(OldNames, ARecipeMustUseTheCurrentOnes) {
  EXPECT_ERROR(parse_recipe("[some]\nreadout = \"features\"\n", "a.toml", {}), Code::setting_unknown, "some.readout",
               "some.output_proj");
  EXPECT_ERROR(parse_recipe("", "a.toml", {"model.look_back=2"}), Code::setting_unknown, "model.look_back",
               "model.conv");
  EXPECT_ERROR(parse_recipe("", "a.toml", {"memory.sharpness=[20.0]"}), Code::setting_unknown, "memory.sharpness",
               "memory.beta");
}

TEST(OldNames, TensorNamesGoBothWays) {
  for (const auto& [old, now] : {std::pair{"layers.0.readin.weight", "layers.0.input_proj.weight"},
                                 {"first.layers.3.readout.weight", "first.layers.3.output_proj.weight"},
                                 {"expect.d.look_back.weight", "expect.d.conv.weight"},
                                 {"layers.0.attn.qkv.weight", "layers.0.attn.qkv.weight"}}) {
    EXPECT_EQ(current_tensor(old), now);
    EXPECT_EQ(first_tensor_name(now), old);
  }
}

}  // namespace
}  // namespace some
