// The samples that a report keeps in the run's folder: what is damaged is never shown as what the model wrote.
#include "lab/samples.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "analysis/tiny_run.h"
#include "core/files.h"
#include "flip_bits.h"
#include "runs/run_list.h"

namespace some {
namespace {

namespace fs = std::filesystem;

bool same(const RunSamples& a, const RunSamples& b) {
  const auto texts = [](const RunSamples& all) {
    std::string out = fmt::format("{} {} {}\n", all.step, all.layer, all.skipped);
    for (const Sample& one : all.samples) out += one.prompt + "|" + one.how + "|" + one.text + "\n";
    for (const TracedToken& one : all.trace)
      out += fmt::format("{} {} {}\n", one.token, fmt::join(one.experts, ","), fmt::join(one.gates, ","));
    return out;
  };
  return texts(a) == texts(b);
}

TEST(Samples, EveryFlippedBitIsNamedOrHarmless) {
  const TemporaryFolder folder;
  const std::string run = train_tiny(folder, {"model.seq_len=16", "model.layers=1"});
  const RunHistory history = read_history(*find_run(run));
  std::vector<LogMessage> warnings;
  Host host = make_host(1);
  host.log = Log([&](const LogMessage& message) { warnings.push_back(message); });
  sample_run(history, on_cpu, host);
  // Without a checkpoint they cannot be written again: what is read is all there is.
  fs::rename(run + "/checkpoints", run + "/aside");
  const std::string path = run + "/samples.json";
  const RunSamples written = sample_run(history, on_cpu, host);
  ASSERT_EQ(written.samples.size(), 3u) << written.skipped;
  ASSERT_FALSE(written.trace.empty());
  EXPECT_TRUE(warnings.empty());
  std::size_t named = 0, harmless = 0;
  flip_every_bit(path, [&](std::size_t byte, int bit) {
    warnings.clear();
    const RunSamples read = sample_run(history, on_cpu, host);
    if (same(read, written)) {
      ++harmless;
      return;
    }
    ++named;
    EXPECT_FALSE(read.skipped.empty()) << "damage at bit " << bit << " of byte " << byte << " was taken for samples";
    ASSERT_EQ(warnings.size(), 1u) << byte << " " << bit;
    EXPECT_NE(warnings[0].text.find(path), std::string::npos) << warnings[0].text;
  });
  EXPECT_GT(named, 8 * read_file(path).size() * 9 / 10);
  EXPECT_LT(harmless, named / 10);
  // With one they are.
  fs::rename(run + "/aside", run + "/checkpoints");
  std::string damaged = read_file(path);
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  write_file_atomic(path, damaged);
  warnings.clear();
  EXPECT_TRUE(sample_run(history, on_cpu, host).skipped.empty());
  EXPECT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(same(sample_run(history, on_cpu, host), written));
  EXPECT_EQ(warnings.size(), 1u);
}

}  // namespace
}  // namespace some
