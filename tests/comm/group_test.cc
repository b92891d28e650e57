// What a group computes does not depend on what carries its messages: here, threads of one process.
#include "comm/group.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "comm/all_gather_rows.h"
#include "core/error.h"
#include "thread_ranks.h"

namespace some {
namespace {

TEST(Group, AloneNothingHappens) {
  const Group group;
  EXPECT_TRUE(group.alone());
  EXPECT_TRUE(group.root());
  Threads threads(1);
  float value = 3;
  const Tensor tensor = Tensor::wrap(&value, {1}, DType::f32, Device::cpu, nullptr);
  group.sum(threads, std::array{tensor});
  EXPECT_EQ(value, 3);
  EXPECT_EQ(group.all_reduce_max(-4), -4);
  EXPECT_EQ(group.gather("x"), std::vector<std::string>{"x"});
}

TEST(Group, BlocksArePartsOfTheTree) {
  // As sums of strings: the shape of the tree is seen.
  const std::function<std::string(std::int64_t, std::int64_t)> tree = [&](std::int64_t begin, std::int64_t end) {
    if (end - begin == 1) return std::to_string(begin);
    std::int64_t half = 1;
    while (2 * half < end - begin) half *= 2;
    return "(" + tree(begin, begin + half) + " " + tree(begin + half, end) + ")";
  };
  for (std::int64_t items = 1; items <= 40; ++items) {
    for (int ranks = 1; ranks <= items; ++ranks) {
      std::vector<std::string> parts;
      std::int64_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        const Block block = block_of(items, r, ranks);
        EXPECT_EQ(block.begin, next);
        next = block.end;
        if (block.count() > 0) parts.push_back(tree(block.begin, block.end));
      }
      EXPECT_EQ(next, items);
      EXPECT_EQ(enough_for_all_ranks(items, ranks), static_cast<int>(parts.size()) == ranks);
      const std::function<std::string(std::size_t, std::size_t)> over = [&](std::size_t begin, std::size_t end) {
        if (end - begin == 1) return parts[begin];
        std::size_t half = 1;
        while (2 * half < end - begin) half *= 2;
        return "(" + over(begin, begin + half) + " " + over(begin + half, end) + ")";
      };
      EXPECT_EQ(over(0, parts.size()), tree(0, items)) << items << " on " << ranks;
    }
  }
}

TEST(Group, SumsByTheTree) {
  for (const int size : {2, 3, 4, 5, 6, 7, 8, 16}) {
    // Small tensors go together, the large one by itself; some have fewer numbers than there are ranks.
    const std::vector<std::int64_t> counts{1, 5, 1000, 70001};
    std::vector<std::vector<std::vector<float>>> results(static_cast<std::size_t>(size));
    on_ranks(size, [&](const Group& group) {
      Threads threads(1);
      auto& mine = results[static_cast<std::size_t>(group.rank())];
      std::vector<Tensor> tensors;
      for (const std::int64_t count : counts) mine.push_back(numbers(group.rank(), count));
      for (auto& one : mine)
        tensors.push_back(
            Tensor::wrap(one.data(), {static_cast<std::int64_t>(one.size())}, DType::f32, Device::cpu, nullptr));
      std::int64_t whole = group.rank() + 1;
      std::int32_t small = 1 << group.rank();
      tensors.push_back(Tensor::wrap(&whole, {1}, DType::i64, Device::cpu, nullptr));
      tensors.insert(tensors.begin(), Tensor::wrap(&small, {1}, DType::i32, Device::cpu, nullptr));
      tensors.insert(tensors.begin(), Tensor());  // what is not kept is passed over
      group.sum(threads, tensors);
      EXPECT_EQ(whole, size * (size + 1) / 2);
      EXPECT_EQ(small, (1 << size) - 1);
      // In a power of two no rank sends more than a ring would; what is gathered first is little.
      if ((size & (size - 1)) == 0) {
        const double ring = 2.0 * (size - 1) / size * 4 * 71007;
        EXPECT_LT(static_cast<double>(group.traffic().bytes), ring + 20000);
      }
    });
    expect_tree_sums(results, counts);
  }
}

TEST(Group, GathersBroadcastsAndFolds) {
  for (const int size : {2, 3, 4, 7, 8}) {
    on_ranks(size, [&](const Group& group) {
      const std::vector<std::string> all = group.gather(std::string(static_cast<std::size_t>(group.rank() * 3), 'x'));
      ASSERT_EQ(static_cast<int>(all.size()), size);
      for (int r = 0; r < size; ++r) EXPECT_EQ(static_cast<int>(all[static_cast<std::size_t>(r)].size()), 3 * r);
      std::string text = group.root() ? "from the first" : "other";
      group.broadcast(text);
      EXPECT_EQ(text, "from the first");
      EXPECT_EQ(group.all_reduce_max((group.rank() * 5) % size == 2 % size ? 9 : group.rank() % 2), 9);
      group.barrier();
      // Order matters to what is folded: the digits of the ranks, one after the other.
      Tensor digits = Tensor::zeros({1}, DType::i64);
      digits.data<std::int64_t>()[0] = group.rank() + 1;
      Tensor width = Tensor::zeros({1}, DType::i64);
      width.data<std::int64_t>()[0] = 10;
      group.fold(std::array{digits, width}, [&](std::span<const Tensor> later) {
        digits.data<std::int64_t>()[0] =
            digits.data<std::int64_t>()[0] * later[1].data<std::int64_t>()[0] + later[0].data<std::int64_t>()[0];
        width.data<std::int64_t>()[0] *= later[1].data<std::int64_t>()[0];
      });
      std::int64_t expected = 0;
      for (int r = 0; r < size; ++r) expected = 10 * expected + r + 1;
      EXPECT_EQ(digits.data<std::int64_t>()[0], expected);
    });
  }
}

TEST(Group, ExchangesRows) {
  for (const int size : {1, 2, 3, 4, 7}) {
    on_ranks(size, [&](const Group& linked) {
      const Group group = size == 1 ? Group() : linked;
      const int self = group.rank();
      // Rank r has (r + 2 q) % 3 rows for rank q: some have none. A row says where it comes from and goes to.
      const auto rows = [&](int from, int to) { return std::int64_t{(from + 2 * to) % 3}; };
      std::vector<std::int64_t> sent;
      std::vector<float> out;
      for (int q = 0; q < size; ++q) {
        sent.push_back(rows(self, q));
        for (std::int64_t i = 0; i < sent.back(); ++i)
          out.insert(out.end(), {static_cast<float>(self), static_cast<float>(q), static_cast<float>(i)});
      }
      const std::vector<std::int64_t> received = group.exchange(sent);
      std::vector<float> expected;
      std::int64_t total = 0;
      for (int q = 0; q < size; ++q) {
        ASSERT_EQ(received[static_cast<std::size_t>(q)], rows(q, self));
        total += rows(q, self);
        for (std::int64_t i = 0; i < rows(q, self); ++i)
          expected.insert(expected.end(), {static_cast<float>(q), static_cast<float>(self), static_cast<float>(i)});
      }
      const Tensor from =
          Tensor::wrap(out.data(), {static_cast<std::int64_t>(out.size()) / 3, 3}, DType::f32, Device::cpu, nullptr);
      const Tensor to = Tensor::zeros({total, 3}, DType::f32);
      group.exchange(from, sent, to, received);
      const auto* const arrived = to.data<float>();
      EXPECT_EQ(std::vector<float>(arrived, arrived + 3 * total), expected);
      std::vector<std::int64_t> wrong = sent;
      wrong.back() += 1;
      EXPECT_THROW(group.exchange(from, wrong, to, received), Error);
    });
  }
}

TEST(Group, EveryRankGetsAllRows) {
  for (const int size : {1, 2, 3, 5, 8}) {
    on_ranks(size, [&](const Group& linked) {
      const Group group = size == 1 ? Group() : linked;
      std::vector<std::int64_t> counts;
      std::vector<std::int32_t> expected;
      for (int r = 0; r < size; ++r) {
        counts.push_back(r * 2 % 5);  // some have none
        for (std::int64_t i = 0; i < counts.back(); ++i)
          expected.insert(expected.end(), {r * 10, static_cast<std::int32_t>(i)});
      }
      const std::int64_t own = counts[static_cast<std::size_t>(group.rank())];
      const Tensor mine = Tensor::zeros({own, 2}, DType::i32);
      for (std::int64_t i = 0; i < own; ++i) {
        mine.data<std::int32_t>()[2 * i] = group.rank() * 10;
        mine.data<std::int32_t>()[2 * i + 1] = static_cast<std::int32_t>(i);
      }
      const auto rows = static_cast<std::int64_t>(expected.size()) / 2;
      Tensor all = Tensor::zeros({rows, 2}, DType::i32);
      all_gather_rows(group, mine, counts, all);
      EXPECT_EQ(std::vector<std::int32_t>(all.data<std::int32_t>(), all.data<std::int32_t>() + 2 * rows), expected);
      Tensor small = Tensor::zeros({rows + 1, 2}, DType::i32);
      EXPECT_THROW(all_gather_rows(group, mine, counts, small), Error);
    });
  }
}

TEST(Group, PartsAreGroupsOfTheirOwn) {
  on_ranks(6, [&](const Group& group) {
    // Three neighbours each; then the two that have the same place.
    const int first = group.rank() / 3 * 3;
    const Group neighbours = group.split(std::array{first, first + 1, first + 2});
    EXPECT_EQ(neighbours.size(), 3);
    EXPECT_EQ(neighbours.rank(), group.rank() % 3);
    Threads threads(1);
    std::int64_t value = group.rank();
    const Tensor tensor = Tensor::wrap(&value, {1}, DType::i64, Device::cpu, nullptr);
    neighbours.sum(threads, std::array{tensor});
    EXPECT_EQ(value, group.rank() < 3 ? 3 : 12);
    const Group across = group.split(std::array{group.rank() % 3 + 3, group.rank() % 3});
    EXPECT_EQ(across.rank(), group.rank() < 3 ? 1 : 0);
    across.sum(threads, std::array{tensor});
    EXPECT_EQ(value, 15);
    EXPECT_TRUE(group.split(std::array{group.rank()}).alone());
  });
}

TEST(Group, AFailureOnOneRankIsThrownByAll) {
  const auto thrown_by = [](const Group& group, const std::function<void()>& work) -> std::string {
    try {
      group.all_or_none(work);
    } catch (const CommonFailure& failure) {
      return (failure.fault() == Fault::input ? "input: " : "failure: ") + std::string(failure.what());
    }
    return "";
  };
  on_ranks(3, [&](const Group& group) {
    int done = 0;
    EXPECT_EQ(thrown_by(group, [&] { ++done; }), "");
    EXPECT_EQ(done, 1);
    EXPECT_EQ(thrown_by(group,
                        [&] {
                          if (group.rank() > 0) failed("no room for {}", group.rank());
                        }),
              "failure: rank 1 on " + group.host(1) + ": no room for 1");
    EXPECT_EQ(thrown_by(group, [&] { bad_input("no text"); }), "input: no text");
    group.barrier();  // they still understand each other
  });
  EXPECT_THROW(Group().all_or_none([] { failed("alone"); }), Error);
}

TEST(Group, NamesWhatDiffers) {
  on_ranks(4, [&](const Group& group) {
    group.check_identical({{"a", "1"}, {"b", "2"}});
    try {
      group.check_identical({{"a", "1"}, {"some.top_k", group.rank() == 2 ? "8" : "4"}, {"c", "3"}});
      ADD_FAILURE() << "nothing was noticed";
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("some.top_k: rank 2 on "), std::string::npos) << what;
      EXPECT_NE(what.find("has 8, rank 0"), std::string::npos) << what;
      EXPECT_EQ(error.fault(), Fault::input);
    }
  });
}

// What a process is told of its ranks, in variables that only the test sets.
class EnvironmentOfRanks : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }

  static void set(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  static void expect_refused(const std::map<std::string, std::string>& variables, const std::string& why,
                             bool open = false) {
    set(variables);
    try {
      if (open)
        open_group({});
      else
        rank_environment();
      ADD_FAILURE() << "not refused: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::input);
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what() << "\nwanted: " << why;
    }
  }

 private:
  static void clear() {
    for (const char* name : {"SOME_RANK", "SOME_RANKS", "SOME_RANKS_AT", "SOME_RANK_PATIENCE", "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMIX_RANK", "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"})
      unsetenv(name);
  }
};

TEST_F(EnvironmentOfRanks, IsRead) {
  EXPECT_EQ(rank_environment().size, 1);
  set({{"SOME_RANK", "2"}, {"SOME_RANKS", "3"}, {"SOME_RANKS_AT", "localhost:1"}});
  EXPECT_EQ(rank_environment().rank, 2);
  EXPECT_EQ(rank_environment().size, 3);
  set({{"SOME_RANK", "0"}, {"SOME_RANKS", "1"}});
  EXPECT_EQ(rank_environment().size, 1) << "one rank, who meets nobody";
  set({{"SOME_RANK", ""}, {"SOME_RANKS", ""}, {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}});
  EXPECT_EQ(rank_environment().rank, 1) << "an empty variable says nothing";
  set({{"PMI_RANK", "x"}, {"PMI_SIZE", "4"}});
  EXPECT_EQ(rank_environment().size, 1) << "variables of others are not ours to judge";
}

TEST_F(EnvironmentOfRanks, UnderSrunMeetWithoutMpiUnlessItServesMpi) {
  std::map<std::string, std::string> step{
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "2"}};
  const auto meeting = [&](const char* name, const char* value) {
    auto with = step;
    if (name != nullptr) with[name] = value;
    set(with);
    EXPECT_EQ(rank_environment().rank, 1);
    EXPECT_EQ(rank_environment().size, 4);
    return rank_environment().meeting;
  };
  EXPECT_EQ(meeting(nullptr, nullptr), "./some-ranks-77.2.0");
  EXPECT_EQ(meeting("SLURM_RESTART_COUNT", "3"), "./some-ranks-77.2.3") << "not the file of the job before";
  EXPECT_EQ(meeting("SOME_RANKS_AT", "./here"), "./here") << "said outright";
  EXPECT_EQ(meeting("PMIX_RANK", "1"), "") << "srun --mpi=pmix";
  EXPECT_EQ(meeting("PMI_FD", "10"), "") << "srun --mpi=pmi2";
  step["SLURM_STEP_NUM_TASKS"] = "1";
  set(step);
  EXPECT_EQ(rank_environment().size, 1);
  EXPECT_EQ(rank_environment().meeting, "");
}

TEST_F(EnvironmentOfRanks, NonsenseIsRefused) {
  expect_refused({{"SOME_RANK", "1"}}, "SOME_RANK is set in the environment and SOME_RANKS is not");
  expect_refused({{"SOME_RANKS", "2"}}, "SOME_RANKS is set in the environment and SOME_RANK is not");
  expect_refused({{"SOME_RANK", "5"}, {"SOME_RANKS", "2"}, {"SOME_RANKS_AT", "./meet"}},
                 "SOME_RANK is 5 and SOME_RANKS is 2 in the environment: ranks count from 0, so the last of them is 1");
  expect_refused({{"SOME_RANK", "0"}, {"SOME_RANKS", "2"}}, "SOME_RANKS_AT does not say where the ranks meet");
  for (const char* value : {"-1", "two", "1.5", "1 ", "99999999999"}) {
    expect_refused({{"SOME_RANK", value}, {"SOME_RANKS", "2"}},
                   fmt::format("SOME_RANK is '{}' in the environment; it may be a whole number of at least 0", value));
    expect_refused({{"SOME_RANK", "0"}, {"SOME_RANKS", value}},
                   fmt::format("SOME_RANKS is '{}' in the environment; it may be a whole number of at least 1", value));
  }
  expect_refused({{"SOME_RANK", "0"}, {"SOME_RANKS", "0"}}, "a whole number of at least 1");
}

TEST_F(EnvironmentOfRanks, NoMeetingWithoutSense) {
  expect_refused({{"SOME_RANKS_AT", "./meet"}}, "set SOME_RANK and SOME_RANKS too", true);
  for (const std::string at : {"nowhere", "localhost:", ":80", "localhost:x", "localhost:70000", "localhost:0"}) {
    for (const char* rank : {"0", "1"})
      expect_refused({{"SOME_RANK", rank}, {"SOME_RANKS", "2"}, {"SOME_RANKS_AT", at}},
                     "SOME_RANKS_AT is '" + at + "' in the environment; it may be HOST:PORT", true);
  }
  expect_refused({{"SOME_RANK", "0"}, {"SOME_RANKS", "2"}, {"SOME_RANKS_AT", "no"}, {"SOME_RANK_PATIENCE", "soon"}},
                 "SOME_RANK_PATIENCE is 'soon' in the environment", true);
  set({{"SOME_RANK", "0"}, {"SOME_RANKS", "1"}, {"SOME_RANKS_AT", "./meet"}});
  EXPECT_TRUE(open_group({}).alone());
}

}  // namespace
}  // namespace some
