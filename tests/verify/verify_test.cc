// A case of the key update that is small enough to be calculated by hand, with settings of a recipe in its config.
#include "verify/verify.h"

#include <gtest/gtest.h>

#include "core/files/files.h"
#include "expect_error.h"
#include "temporary_folder.h"
#include "tensor/safetensors.h"
#include "thread_ranks.h"

namespace some {
namespace {

Tensor numbers(const Shape& shape, const std::vector<double>& values) {
  Tensor out = Tensor::empty(shape, DType::f64);
  std::copy(values.begin(), values.end(), out.data<double>());
  return out;
}

// Two experts on the axes, both chosen by the one token of each of two steps. Only beta moves them, a quarter of the
// distance to each other at full strength, and it decays to 0 in the last step. Usage is equal except for its initial
// value.
std::string write_case(const TemporaryFolder& folder, const std::string& gini, double second_usage) {
  Tensor chosen = Tensor::empty({1, 2}, DType::i64);
  chosen.data<std::int64_t>()[0] = 0;
  chosen.data<std::int64_t>()[1] = 1;
  std::vector<std::pair<std::string, Tensor>> tensors{{"keys", numbers({2, 2}, {1, 0, 0, 1})},
                                                      {"usage", numbers({2}, {0.1, second_usage})},
                                                      {"mass", numbers({2}, {0, 0})}};
  for (int i = 0; i < 2; ++i) {
    const std::string step = "step." + std::to_string(i) + ".", expect = "expect." + std::to_string(i) + ".";
    tensors.push_back({step + "queries", numbers({1, 2}, {0.6, 0.8})});
    tensors.push_back({step + "indices", chosen});
    tensors.push_back({step + "gates", numbers({1, 2}, {0.5, 0.5})});
    tensors.push_back({expect + "keys", numbers({2, 2}, {0.75, 0.25, 0.25, 0.75})});
    tensors.push_back({expect + "usage", numbers({2}, {1.1 + i, second_usage + 1 + i})});
    tensors.push_back({expect + "mass", numbers({2}, {0.5 * (1 + i), 0.5 * (1 + i)})});
  }
  const std::string config =
      R"({"experts": 2, "d_model": 2, "top_k": 2, "steps": 2, "beta": 0.525, "use_alpha": false, "use_delta": false,
    "constraint": "free", "usage": "cumulative", "beta_anneal": {"shape": "linear", "start": 1.0, "end": 0.0}})";
  write_safetensors(folder / "case.safetensors", tensors, {{"kind", "keys"}, {"config", config}, {"gini", gini}});
  return folder / "case.safetensors";
}

TEST(Verify, BetaIsAnnealedOverTheStepsOfACase) {
  TemporaryFolder folder;
  for (const Precision precision : {Precision::f64, Precision::fp32}) {
    const VerifyReport report = verify_fixture(write_case(folder, "0", 0.1), {{}, precision, {}});
    ASSERT_NE(report.worst(), nullptr);
    EXPECT_TRUE(report.passed()) << name_of(precision) << ": " << report.worst()->name << " " << report.worst()->error;
  }
}

// A Gini near 0 is a difference of nearly equal usages, which single precision does not resolve to five digits.
TEST(Verify, ASmallGiniIsNotComparedWithItself) {
  TemporaryFolder folder;
  const VerifyReport report =
      verify_fixture(write_case(folder, "1.1904478458e-08", 0.1 + 1e-7), {{}, Precision::fp32, {}});
  EXPECT_TRUE(report.passed()) << report.worst()->name << " " << report.worst()->error;
  EXPECT_FALSE(verify_fixture(write_case(folder, "0.001", 0.1), {{}, Precision::fp32, {}}).passed());
}

// Results of the NumPy reference for every kind and setting: tests/reference.
TEST(Verify, TheCommittedFixturesPass) {
  const std::vector<std::string> files = find_fixtures({SOME_SOURCE_DIR "/tests/reference/fixtures"});
  for (const Precision precision : {Precision::f64, Precision::fp32}) {
    std::map<std::string, int> kinds;
    for (const std::string& file : files) {
      const VerifyReport report = verify_fixture(file, {{}, precision, {}});
      kinds[report.kind] += 1;
      ASSERT_NE(report.worst(), nullptr) << file;
      EXPECT_TRUE(report.passed()) << file << " in " << name_of(precision) << ": " << report.worst()->name << " "
                                   << report.worst()->error;
    }
    for (const char* kind : {"layer", "keys", "model"}) EXPECT_GE(kinds[kind], 10) << kind;
    EXPECT_GE(kinds["memory"], 4);
  }
}

TEST(Verify, AFolderThatCannotBeReadIsAnError) {
  TemporaryFolder folder;
  EXPECT_THROW(find_fixtures({folder.path()}), Error);  // empty
  std::filesystem::create_symlink("not mounted", folder / "away");
  EXPECT_THROW(find_fixtures({folder / "away"}), Error);
}

TEST(Verify, AResultThatNobodyComparesIsRefused) {
  TemporaryFolder folder;
  const std::string path = write_case(folder, "0", 0.1);
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::vector<std::pair<std::string, Tensor>> tensors{{"expect.0.key", numbers({1}, {1})}};
  for (const std::string& name : file.names()) tensors.push_back({name, file.load(name)});
  write_safetensors(folder / "other.safetensors", tensors, file.metadata());
  EXPECT_ERROR((verify_fixture(folder / "other.safetensors", {{}, Precision::f64, {}})), Code::fixture_invalid,
               folder / "other.safetensors", "expect.0.key");
}

TEST(Verify, ASettingThatIsNoneIsRefused) {
  TemporaryFolder folder;
  const std::string path = folder / "case.safetensors";
  write_safetensors(path, {{"keys", numbers({1, 1}, {1})}},
                    {{"kind", "keys"}, {"config", R"({"experts": 1, "d_model": 1, "entropy_band": [0.5]})"}});
  EXPECT_ERROR((verify_fixture(path, {{}, Precision::f64, {}})), Code::json_type, "entropy_band", "a list of 1 value");
}

// Damage to any one byte is noticed: low bits of numbers are within the tolerance, and many a name has a default.
TEST(Verify, AFixtureWithAnyOtherByteIsRefused) {
  TemporaryFolder folder;
  const std::string committed = SOME_SOURCE_DIR "/tests/reference/fixtures/memory-one-window.safetensors";
  const std::string whole = read_file(committed), path = folder / "case.safetensors";
  EXPECT_TRUE(verify_fixture(committed, {{}, Precision::f64, {}}).passed());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    folder.write("case.safetensors", damaged);
    const auto error = error_in([&] { verify_fixture(path, {{}, Precision::f64, {}}); });
    ASSERT_TRUE(error && error->fault() == Fault::input) << "byte " << at;
  }
}

TEST(Verify, AKeyThatIsNoneIsRefused) {
  TemporaryFolder folder;
  const std::string path = folder / "case.safetensors";
  write_safetensors(path, {{"keys", numbers({1, 1}, {1})}},
                    {{"kind", "keys"}, {"config", R"({"experts": 1, "d_model": 1, "alhpa": 0.5})"}});
  EXPECT_ERROR((verify_fixture(path, {{}, Precision::f64, {}})), Code::fixture_invalid,
               path + ": `config` in its header", "\"alhpa\"");
}

// Each of these once caused an out-of-bounds access, a division by zero or an endless wait.
TEST(Verify, ShapesIdsAndSizesAreCheckedBeforeTheyAreUsed) {
  TemporaryFolder folder;
  const std::string path = folder / "case.safetensors";
  const auto id = [](std::int64_t first, std::int64_t second) {
    Tensor out = Tensor::empty({1, 2}, DType::i64);
    out.data<std::int64_t>()[0] = first;
    out.data<std::int64_t>()[1] = second;
    return out;
  };
  const auto refused = [&](const std::string& config, const std::string& changed, const Tensor& tensor, Code code,
                           const std::vector<std::string>& values) {
    std::vector<std::pair<std::string, Tensor>> tensors{{"keys", numbers({2, 2}, {1, 0, 0, 1})},
                                                        {"usage", numbers({2}, {0, 0})},
                                                        {"mass", numbers({2}, {0, 0})},
                                                        {"step.0.queries", numbers({1, 2}, {0.6, 0.8})},
                                                        {"step.0.indices", id(0, 1)},
                                                        {"step.0.gates", numbers({1, 2}, {0.5, 0.5})}};
    for (auto& [name, old] : tensors) {
      if (name == changed) old = tensor;
    }
    write_safetensors(path, tensors, {{"kind", "keys"}, {"config", config}});
    const auto error = error_in([&] { verify_fixture(path, {{}, Precision::f64, {}}); });
    EXPECT_TRUE(is_bad_input(error, code, values)) << config << " " << changed;
    if (error) {
      EXPECT_NE(std::string(error->what()).find(path), std::string::npos) << error->what();
    }
  };
  const std::string good = R"({"experts": 2, "d_model": 2, "top_k": 2})";
  refused(good, "", {}, Code::tensor_not_found, {path, "expect.0.keys"});  // complete except for the expected results
  refused(good, "step.0.indices", id(0, 2), Code::tensor_value, {path, "step.0.indices", "2", "0", "1"});
  refused(good, "step.0.indices", id(-1, 1), Code::tensor_value, {path, "step.0.indices", "-1", "0", "1"});
  refused(good, "step.0.indices", numbers({1, 2}, {0, 1}), Code::tensor_type, {path, "step.0.indices"});
  refused(good, "step.0.gates", numbers({2}, {0.5, 0.5}), Code::tensor_shape, {path, "step.0.gates", "[2]", "[1, 2]"});
  refused(good, "step.0.queries", numbers({0, 2}, {}), Code::tensor_shape, {path, "step.0.queries", "[0, 2]"});
  refused(good, "usage", numbers({1}, {0}), Code::tensor_shape, {path, "usage", "[1]"});
  refused(R"({"experts": 3, "d_model": 2, "top_k": 2})", "", {}, Code::tensor_shape, {path, "keys", "[2, 2]"});
  refused(R"({"experts": 200000, "d_model": 2, "top_k": 2})", "", {}, Code::fixture_invalid, {});
  refused(R"({"experts": 2, "d_model": 2, "top_k": 3})", "", {}, Code::json_type, {"top_k", "3"});
  refused(R"({"experts": 2, "d_model": 2, "top_k": 2, "steps": 0})", "", {}, Code::json_out_of_range,
          {"steps", "1", "0"});
  refused(R"({"experts": 2, "d_model": 2, "top_k": 2, "steps": 1e3})", "", {}, Code::json_type, {"steps"});
  refused(R"({"experts": 2, "d_model": "2", "top_k": 2})", "", {}, Code::json_type, {"d_model"});
  refused(R"({"experts": 2, "d_model": 2, "usage": "often"})", "", {}, Code::json_type, {"usage"});
  refused("[]", "", {}, Code::json_type, {});
  refused("{", "", {}, Code::json_syntax, {});
}

// Ranks as threads, each with a part of every layer's experts: results equal those of the fixtures.
TEST(Verify, ExpertsOverRanksGiveTheSame) {
  int compared = 0;
  for (const std::string& path : find_fixtures({SOME_SOURCE_DIR "/tests/reference/fixtures"})) {
    const std::string name = path.substr(path.find_last_of('/') + 1);
    if (!name.starts_with("layer-") && !name.starts_with("model-")) continue;
    for (const auto& [ranks, precision] : {std::pair(2, Precision::fp32), std::pair(4, Precision::f64)}) {
      std::vector<VerifyReport> reports(static_cast<std::size_t>(ranks));
      on_ranks(ranks, [&](const Group& group) {
        reports[static_cast<std::size_t>(group.rank())] = verify_fixture(path, {{}, precision, {}, group});
      });
      for (const VerifyReport& report : reports) {
        EXPECT_TRUE(report.passed()) << name << " on " << ranks << " ranks, " << name_of(precision) << ": "
                                     << report.worst()->name << " " << report.worst()->error;
      }
      compared += static_cast<int>(reports[0].comparisons.size());
    }
  }
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace some
