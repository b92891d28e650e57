#include "analysis/guilds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"

namespace some {
namespace {

Threads few(3);

// 4000 positions, 8 experts, k = 2, 20 labels; with `planted`, expert 3 is the first choice for label 0 with
// probability 0.9, and elsewhere with probability 0.05.
LabeledAssignments made_up(bool planted) {
  const RandomStream stream = random_stream(11, "test labels");
  LabeledAssignments c{8, 2, 20, {}, {}, {}};
  for (std::uint64_t t = 0; t < 4000; ++t) {
    const auto label = static_cast<std::int32_t>(stream.below(4 * t, 20));
    std::int32_t first = static_cast<std::int32_t>(stream.below(4 * t + 1, 8));
    if (planted)
      first = (label == 0 ? stream.uniform(4 * t + 3) < 0.9 : stream.uniform(4 * t + 3) < 0.05)
                  ? 3
                  : (first == 3 ? 4 : first);
    std::int32_t second = static_cast<std::int32_t>(stream.below(4 * t + 2, 8));
    if (second == first) second = (second + 1) % 8;
    c.label.push_back(label);
    c.chosen.insert(c.chosen.end(), {first, second});
  }
  return c;
}

TEST(LabelTest, MutualInformationOfASmallTableByHand) {
  // Expert = label, two of each: one bit. Expert and label independent: zero.
  const LabelTest same = test_labels(few, {2, 1, 2, {0, 0, 1, 1}, {0, 0, 1, 1}, {}}, {});
  EXPECT_NEAR(same.information.value, 1, 1e-12);
  EXPECT_NEAR(same.expert_entropy, 1, 1e-12);
  EXPECT_NEAR(same.purity.value, 1, 1e-12);
  const LabelTest none = test_labels(few, {2, 1, 2, {0, 1, 0, 1}, {0, 0, 1, 1}, {}}, {});
  EXPECT_NEAR(none.information.value, 0, 1e-12);
  EXPECT_NEAR(none.purity.value, 0.5, 1e-12);
  // Counts 3, 1 / 0, 4 of eight: sum of p log2(p / (p_e p_v)).
  const LabelTest mixed = test_labels(few, {2, 1, 2, {0, 0, 0, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}, {}}, {});
  const double expected = 3. / 8 * std::log2(3. / 8 / (3. / 8 * 0.5)) + 1. / 8 * std::log2(1. / 8 / (5. / 8 * 0.5)) +
                          0.5 * std::log2(0.5 / (5. / 8 * 0.5));
  EXPECT_NEAR(mixed.information.value, expected, 1e-12);
}

TEST(LabelTest, FindsAPlantedGuild) {
  LabelTestOptions options;
  options.affinities = true;
  const LabelTest test = test_labels(few, made_up(true), options);
  EXPECT_LE(test.information.p, 1.0 / 101 + 1e-12);
  EXPECT_GT(test.information.z, 10);
  const Affinity& guild = test.expert_affinity[0];
  EXPECT_EQ(guild.unit, 3);
  EXPECT_LE(guild.p, 1.0 / 101 + 1e-12);
  EXPECT_GT(guild.lift(), 3);
  EXPECT_GT(guild.recall, 0.85);
  // Sets that contain expert 3 are found too.
  const Affinity& set = test.set_affinity[0];
  ASSERT_GE(set.unit, 0);
  const std::vector<int>& members = test.sets[static_cast<std::size_t>(set.unit)];
  EXPECT_NE(std::find(members.begin(), members.end(), 3), members.end());
}

TEST(LabelTest, SeesNothingInChance) {
  LabelTestOptions options;
  options.affinities = true;
  const LabelTest test = test_labels(few, made_up(false), options);
  // The information is not zero, as in any finite sample, but equal to that of shuffled labels.
  EXPECT_GT(test.information.value, 0);
  EXPECT_GT(test.information.p, 0.02);
  EXPECT_LT(std::abs(test.information.z), 3);
  int certain = 0;
  for (const Affinity& a : test.expert_affinity) certain += a.p <= 0.05;
  EXPECT_LE(certain, 4);  // of twenty labels, one is expected by chance
}

TEST(LabelTest, PickingTheBestOfManyIsAllowedFor) {
  // The best expert is always some deviations above its base rate; p must not report that as a guild.
  LabelTestOptions options;
  options.affinities = true;
  const LabelTest test = test_labels(few, made_up(false), options);
  double largest = 0, smallest_p = 1;
  for (const Affinity& a : test.expert_affinity) {
    largest = std::max(largest, a.z);
    smallest_p = std::min(smallest_p, a.p);
  }
  EXPECT_GT(largest, 1.5);
  EXPECT_GT(smallest_p, 0.009);
}

TEST(LabelTest, IsTheSameWithAnyNumberOfThreads) {
  const LabeledAssignments choices = made_up(true);
  Threads alone(1);
  const LabelTest one = test_labels(alone, choices, {}), three = test_labels(few, choices, {});
  EXPECT_EQ(one.information.mean, three.information.mean);
  EXPECT_EQ(one.information.deviation, three.information.deviation);
  LabelTestOptions other;
  other.seed = 1;
  EXPECT_NE(test_labels(few, choices, other).information.mean, one.information.mean);
}

TEST(LabelTest, RareUnitsAreNotJudged) {
  LabelTestOptions options;
  options.affinities = true;
  options.min_count = 3;
  // Expert 1 fires once, for label 1.
  const LabelTest test = test_labels(few, {2, 1, 2, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 1}, {}}, options);
  EXPECT_EQ(test.expert_affinity[1].unit, 0);
  EXPECT_EQ(test.sets.size(), 1u);
}

// 120 token types of two classes; expert 0 serves either single types of any class, or every type of class 1.
LabeledAssignments typed(bool guild) {
  const RandomStream stream = random_stream(12, "test types");
  LabeledAssignments c{12, 1, 2, {}, {}, {}};
  for (std::uint64_t t = 0; t < 6000; ++t) {
    const auto type = static_cast<std::int32_t>(stream.below(t, 120));
    const std::int32_t label = type % 3 == 0;
    c.type.push_back(type);
    c.label.push_back(label);
    c.chosen.push_back(guild ? (label == 1 ? type % 2 : 2 + type % 10)
                             : static_cast<std::int32_t>(mix64(static_cast<std::uint64_t>(type)) % 12));
  }
  return c;
}

TEST(LabelTest, AnExpertForSomeTokensIsNoGuildOfTheirClass) {
  LabelTestOptions options;
  options.affinities = true;
  // Experts by a hash of the type: every expert has a preference by position, none by type.
  EXPECT_LE(test_labels(few, typed(false), options).information.p, 0.01);
  options.shuffle_types = true;
  const LabelTest none = test_labels(few, typed(false), options);
  EXPECT_GT(none.information.p, 0.05);
  EXPECT_GT(none.expert_affinity[1].p, 0.05);
  const LabelTest guild = test_labels(few, typed(true), options);
  EXPECT_LE(guild.information.p, 0.01);
  EXPECT_LE(guild.expert_affinity[1].p, 0.01);
  EXPECT_EQ(guild.expert_affinity[1].share, 1);
  // A token with two classes is an error of the caller.
  LabeledAssignments wrong = typed(true);
  wrong.label[0] = 1 - wrong.label[0];
  EXPECT_THROW(test_labels(few, wrong, options), Error);
}

// A report with the given affinities of its best experts to nouns and names, in two layers.
GuildReport found(double noun_share, double noun_p, double name_p_of_layer_1) {
  GuildReport report;
  report.shuffles = 100;
  for (int layer = 0; layer < 2; ++layer) {
    GuildLayer one;
    one.layer = layer;
    one.token.expert_entropy = one.next_token.expert_entropy = 4;
    one.token.information = {1.5 + layer, 0.25, 0.01, 100, 0.0099};
    one.next_token.information = {0.5, 0.25, 0.01, 1, layer == 0 ? 0.02 : 0.4};
    const auto best = [](WordClass word_class, double share, double p) {
      UnitAffinity unit{{3}, {}};
      unit.affinity.share = share;
      unit.affinity.p = p;
      return ClassGuilds{word_class, 0.2, unit, unit, std::nullopt, std::nullopt};
    };
    one.classes = {best(WordClass::noun, noun_share, noun_p),
                   best(WordClass::name, 0.9, layer == 0 ? 0.01 : name_p_of_layer_1)};
    report.layers.push_back(one);
  }
  return report;
}

TEST(Guilds, FindingsAreOneSentenceEach) {
  std::vector<std::string> lines = guild_findings(found(0.3, 0.04, 0.02));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(
      lines[0],
      "the token gives 1.50 to 2.50 of 4.00 bits about the expert (0.25 by chance): beyond chance in every layer");
  EXPECT_NE(lines[1].find("gives 0.50 of 4.00"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("beyond chance in layer 0 of 2"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("name in every layer (p <= 0.02)"), std::string::npos) << lines[2];
  EXPECT_EQ(lines[2].find("noun"), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find("noun in every layer (p <= 0.04) (4 tests; about 1 expected by chance"), std::string::npos)
      << lines[3];
  lines = guild_findings(found(0.9, 0.4, 0.4));
  EXPECT_NE(lines[2].find("name in layer 0 of 2 (p <= 0.01)"), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find("beyond chance: none"), std::string::npos) << lines[3];
}

}  // namespace
}  // namespace some
