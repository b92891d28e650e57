// The results of a group do not depend on its transport; here, threads of one process.
#include "comm/group.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "comm/all_gather_rows.h"
#include "expect_error.h"
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
  group.all_reduce_sum(threads, std::array{tensor});
  EXPECT_EQ(value, 3);
  EXPECT_EQ(group.all_reduce_max(-4), -4);
  EXPECT_EQ(group.all_gather("x"), std::vector<std::string>{"x"});
}

TEST(Group, SumsByTheTree) {
  for (const int size : {2, 3, 4, 5, 6, 7, 8, 16}) {
    // Small tensors are packed together, the large one is sent separately; some have fewer elements than there are
    // ranks.
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
      tensors.insert(tensors.begin(), Tensor());  // skips the parts that are not kept
      group.all_reduce_sum(threads, tensors);
      EXPECT_EQ(whole, size * (size + 1) / 2);
      EXPECT_EQ(small, (1 << size) - 1);
      // With a power of two, no rank sends more bytes than in a ring.
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
      const std::vector<std::string> all =
          group.all_gather(std::string(static_cast<std::size_t>(group.rank() * 3), 'x'));
      ASSERT_EQ(static_cast<int>(all.size()), size);
      for (int r = 0; r < size; ++r) EXPECT_EQ(static_cast<int>(all[static_cast<std::size_t>(r)].size()), 3 * r);
      std::string text = group.root() ? "from the first" : "other";
      group.broadcast(text);
      EXPECT_EQ(text, "from the first");
      EXPECT_EQ(group.all_reduce_max((group.rank() * 5) % size == 2 % size ? 9 : group.rank() % 2), 9);
      group.barrier();
      // The merge is not commutative: concatenates the digits of the ranks.
      Tensor digits = Tensor::zeros({1}, DType::i64);
      digits.data<std::int64_t>()[0] = group.rank() + 1;
      Tensor width = Tensor::zeros({1}, DType::i64);
      width.data<std::int64_t>()[0] = 10;
      group.all_reduce_with(std::array{digits, width}, [&](std::span<const Tensor> later) {
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
      // Rank r has (r + 2 q) % 3 rows for rank q, possibly none. A row contains its source and destination.
      const auto rows = [&](int from, int to) { return std::int64_t{(from + 2 * to) % 3}; };
      std::vector<std::int64_t> sent;
      std::vector<float> out;
      for (int q = 0; q < size; ++q) {
        sent.push_back(rows(self, q));
        for (std::int64_t i = 0; i < sent.back(); ++i)
          out.insert(out.end(), {static_cast<float>(self), static_cast<float>(q), static_cast<float>(i)});
      }
      const std::vector<std::int64_t> received = group.all_to_all(sent);
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
      group.all_to_all(from, sent, to, received);
      const auto* const arrived = to.data<float>();
      EXPECT_EQ(std::vector<float>(arrived, arrived + 3 * total), expected);
      std::vector<std::int64_t> wrong = sent;
      wrong.back() += 1;
      EXPECT_THROW(group.all_to_all(from, wrong, to, received), Error);
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
        counts.push_back(r * 2 % 5);  // possibly none
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

TEST(Group, SplitGroupsAreIndependent) {
  on_ranks(6, [&](const Group& group) {
    // Groups of three neighbors, then groups of the ranks with the same index.
    const int first = group.rank() / 3 * 3;
    const Group neighbours = group.split(std::array{first, first + 1, first + 2});
    EXPECT_EQ(neighbours.size(), 3);
    EXPECT_EQ(neighbours.rank(), group.rank() % 3);
    Threads threads(1);
    std::int64_t value = group.rank();
    const Tensor tensor = Tensor::wrap(&value, {1}, DType::i64, Device::cpu, nullptr);
    neighbours.all_reduce_sum(threads, std::array{tensor});
    EXPECT_EQ(value, group.rank() < 3 ? 3 : 12);
    const Group across = group.split(std::array{group.rank() % 3 + 3, group.rank() % 3});
    EXPECT_EQ(across.rank(), group.rank() < 3 ? 1 : 0);
    across.all_reduce_sum(threads, std::array{tensor});
    EXPECT_EQ(value, 15);
    EXPECT_TRUE(group.split(std::array{group.rank()}).alone());
  });
}

TEST(Group, AFailureOnOneRankIsThrownByAll) {
  const auto thrown_by = [](const Group& group, const std::function<void()>& work) -> std::optional<Error> {
    try {
      group.all_or_none(work);
    } catch (const CollectiveError& failure) {
      return failure;
    }
    return std::nullopt;
  };
  on_ranks(3, [&](const Group& group) {
    int done = 0;
    EXPECT_FALSE(thrown_by(group, [&] { ++done; }));
    EXPECT_EQ(done, 1);
    const auto one = thrown_by(group, [&] {
      if (group.rank() > 0) failed(Code::out_of_memory, "no room for {} {}", group.rank(), "");
    });
    ASSERT_TRUE(is_error(one, Code::out_of_memory));
    EXPECT_EQ(one->fault(), Fault::failure);
    EXPECT_EQ(one->values(), (std::vector<std::string>{"1", ""}));
    EXPECT_EQ(one->what(), "rank 1 on " + group.host(1) + ": no room for 1 ");
    const auto all = thrown_by(group, [&] { bad_input(Code::text_empty, "no text"); });
    ASSERT_TRUE(is_bad_input(all, Code::text_empty));
    EXPECT_STREQ(all->what(), "no text") << "every rank says it: none is named";
    group.barrier();  // the parent group still works
  });
  EXPECT_ERROR(Group().all_or_none([] { failed(Code::internal, "alone"); }), Code::internal);
}

TEST(Group, NamesWhatDiffers) {
  on_ranks(4, [&](const Group& group) {
    group.check_identical({{"a", "1"}, {"b", "2"}});
    const auto error = error_in([&] {
      group.check_identical({{"a", "1"}, {"some.top_k", group.rank() == 2 ? "8" : "4"}, {"c", "3"}});
    });
    EXPECT_TRUE(is_bad_input(error, Code::ranks_differ, {"some.top_k", "2", group.host(2), "8", group.host(0), "4"}));
  });
}

// The environment of a process as set by mpirun or srun.
class EnvironmentOfRanks : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }

  static RankEnvironment with(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    return rank_environment();
  }

 private:
  static void clear() {
    for (const char* name : {"SOME_RANK_PATIENCE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
                             "PMI_SIZE", "PMI_FD", "PMIX_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"})
      unsetenv(name);
  }
};

TEST_F(EnvironmentOfRanks, IsSetByTheStarter) {
  const auto expect = [](const RankEnvironment& got, int rank, int size) {
    EXPECT_EQ(got.rank, rank);
    EXPECT_EQ(got.size, size);
    EXPECT_EQ(got.problem, "");
  };
  expect(with({}), 0, 1);
  expect(with({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}}), 2, 3);
  expect(with({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}), 1, 4);
  expect(with({{"PMI_RANK", "x"}, {"PMI_SIZE", "4"}}), 0, 1);
  expect(with({{"PMI_RANK", ""}, {"PMI_SIZE", ""}}), 0, 1);
  expect(with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}), 0, 1);  // a job script, in which srun starts tasks
  // mpirun -n 1 in a task of srun
  expect(with({{"OMPI_COMM_WORLD_RANK", "0"},
               {"OMPI_COMM_WORLD_SIZE", "1"},
               {"SLURM_PROCID", "1"},
               {"SLURM_STEP_NUM_TASKS", "2"}}),
         0, 1);
}

TEST_F(EnvironmentOfRanks, TasksOfSrunNeedPmix) {
  std::map<std::string, std::string> step{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  const RankEnvironment without = with(step);
  EXPECT_EQ(without.rank, 1);
  EXPECT_EQ(without.size, 4);
  EXPECT_NE(without.problem.find("srun started 4 tasks without PMIx"), std::string::npos) << without.problem;
  EXPECT_NE(without.problem.find("use 'srun --mpi=pmix'"), std::string::npos) << without.problem;
  try {
    open_group({});
    ADD_FAILURE() << "each task would work by itself";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::input);
    EXPECT_EQ(error.what(), without.problem);
  }
  for (const auto& [name, value] : {std::pair{"PMIX_RANK", "1"}, {"PMI_FD", "10"}, {"PMI_RANK", "1"}}) {
    auto served = step;
    served[name] = value;
    const RankEnvironment ranks = with(served);
    EXPECT_EQ(ranks.rank, 1) << name;
    EXPECT_EQ(ranks.size, 4) << name;
    EXPECT_EQ(ranks.problem, "") << name;
  }
  step["SLURM_STEP_NUM_TASKS"] = "1";
  step["SLURM_PROCID"] = "0";
  EXPECT_EQ(with(step).size, 1);
  EXPECT_EQ(with(step).problem, "");
}

TEST_F(EnvironmentOfRanks, PatienceIsANumberOfSeconds) {
  for (const char* value : {"soon", "0", "-1", "1.5", "1 ", "99999999999"}) {
    with({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"SOME_RANK_PATIENCE", value}});
    EXPECT_TRUE(is_bad_input(error_in([] { open_group({}); }), Code::rank_environment, {"SOME_RANK_PATIENCE", value}));
  }
}

}  // namespace
}  // namespace some
