#include "runs/load_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/files/files.h"
#include "temporary_folder.h"
#include "train/small_run.h"

namespace some {
namespace {

TEST(LoadFile, NeverHasMoreThanAThousandLines) {
  EXPECT_EQ(load_every(100, 50), 50);
  EXPECT_EQ(load_every(20, 50), 50);
  EXPECT_EQ(load_every(50000, 50), 50);
  EXPECT_EQ(load_every(50050, 50), 100);
  for (const std::int64_t steps : {1, 7, 999, 12345, 10000000})
    EXPECT_LE(steps / load_every(steps, 3), max_load_lines) << steps;
}

TEST(LoadFile, ReportsLoadsAndContinuesAfterAStep) {
  TemporaryFolder folder;
  const std::string path = folder / "load.jsonl";
  {
    const LoadFile file(path, 0);
    file.write(5, {{0.5, 0.25, 0.25}, {0, 0, 0}});
    file.write(10, {{1, 0, 0}, {1, 1, 2}});
  }
  const std::string first = "{\"load\":[[150,75,75],[0,0,0]],\"step\":5}\n",
                    second = "{\"load\":[[300,0,0],[75,75,150]],\"step\":10}\n";
  EXPECT_EQ(read_file(path), first + second);
  append_bytes(path, "{\"load\":[[1");  // as left by a kill
  LoadFile(path, 12);
  EXPECT_EQ(read_file(path), first + second);
  LoadFile(path, 9);
  EXPECT_EQ(read_file(path), first);
  LoadFile(path, 4);
  EXPECT_FALSE(std::filesystem::exists(path)) << "a run that begins anew";
}

TEST(LoadFile, ARunTellsWhatItsExpertsCarryAndHowFastItGoes) {
  TemporaryFolder folder;
  start_run(recipe({"train.measure_every=2"}), folder / "run", {});
  const RunPaths paths{folder / "run"};
  const std::string load = file_bytes(paths.load()), rates = file_bytes(paths.rates());
  const auto steps = std::count(load.begin(), load.end(), '\n');
  EXPECT_GE(steps, 4);
  EXPECT_NE(load.find("\"step\":2}"), std::string::npos) << load;
  EXPECT_NE(rates.find("\"tokens_per_second\":"), std::string::npos) << rates;
  EXPECT_NE(rates.find("\"seconds\":"), std::string::npos);
}

}  // namespace
}  // namespace some
