#include "memory/partitions.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

namespace some {
namespace {

constexpr int rounds = 6;  // 2-means iterations that refine the border between the two halves

using SlotNumbers = std::vector<std::int64_t>;

// The keys of a partition, projected on axes.
class Cloud {
 public:
  Cloud(Threads& threads, std::span<const double> keys, std::size_t d) : threads_(threads), keys_(keys), d_(d) {}

  std::vector<double> key(std::int64_t slot) const {
    const auto from = keys_.begin() + static_cast<std::ptrdiff_t>(slot) * static_cast<std::ptrdiff_t>(d_);
    return {from, from + static_cast<std::ptrdiff_t>(d_)};
  }
  // Returns the product of each slot's key with an axis.
  std::vector<double> along(const SlotNumbers& slots, const std::vector<double>& axis) const {
    std::vector<double> out(slots.size());
    parallel_chunks(threads_, std::ssize(slots), 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double* row = keys_.data() + static_cast<std::size_t>(slots[static_cast<std::size_t>(i)]) * d_;
        double sum = 0;
        for (std::size_t c = 0; c < d_; ++c) sum += row[c] * axis[c];
        out[static_cast<std::size_t>(i)] = sum;
      }
    });
    return out;
  }
  std::vector<double> sum(const SlotNumbers& slots, std::span<const double> weights) const {
    std::vector<double> out(d_, 0.0);
    for (const std::int64_t slot : slots) {
      const double* row = keys_.data() + static_cast<std::size_t>(slot) * d_;
      const double weight = weights.empty() ? 1.0 : weights[static_cast<std::size_t>(slot)];
      for (std::size_t c = 0; c < d_; ++c) out[c] += weight * row[c];
    }
    return out;
  }
  // Returns the slot with the smallest product with an axis, the lower among equals.
  std::int64_t last_along(const SlotNumbers& slots, const std::vector<double>& axis) const {
    const std::vector<double> at = along(slots, axis);
    return slots[static_cast<std::size_t>(std::min_element(at.begin(), at.end()) - at.begin())];
  }

 private:
  Threads& threads_;
  std::span<const double> keys_;
  std::size_t d_;
};

std::vector<double> minus(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t c = 0; c < a.size(); ++c) a[c] -= b[c];
  return a;
}
std::vector<double> middle(std::vector<double> sum, std::size_t count) {
  for (double& one : sum) one /= static_cast<double>(count);
  return sum;
}

// Moves rows of `size` bytes, one per slot: the rows that stay and the rows that go move to the front of their
// partitions. The rest is filled with the bytes of empty slots.
void rearrange(const PartitionSplit& division, Tensor old_part, Tensor new_part, unsigned char empty) {
  const Tensor host = old_part.to(Device::cpu);
  const std::size_t size = host.bytes() / static_cast<std::size_t>(host.dim(0));
  const auto put = [&](const SlotNumbers& slots, Tensor& target) {
    Tensor rows = Tensor::empty(host.shape(), host.dtype());
    auto* to = static_cast<unsigned char*>(rows.raw());
    std::memset(to, empty, rows.bytes());
    for (const std::int64_t slot : slots) {
      std::memcpy(to, static_cast<const unsigned char*>(host.raw()) + static_cast<std::size_t>(slot) * size, size);
      to += size;
    }
    target.copy_from(rows);
  };
  put(division.stay, old_part);
  put(division.go, new_part);
}

void write_centroid(const std::vector<double>& centroid, Tensor row) {
  Tensor host = Tensor::empty({1, std::ssize(centroid)}, DType::f64);
  std::copy(centroid.begin(), centroid.end(), host.data<double>());
  row.copy_from(host.to(row.dtype()));
}

void divide(Context& ctx, std::int64_t part, Store& store) {
  const std::int64_t size = store.partition_size(), first = part * size, fresh = store.reach, slots = store.slots();
  const PartitionSplit division = plan_partition_split(*ctx.threads, read_vector(store.keys.rows(first, first + size)),
                                                       read_vector(store.counts.rows(first, first + size)),
                                                       read_vector(store.centroids.rows(part, part + 1)));
  const auto move = [&](const Tensor& of, unsigned char empty) {
    rearrange(division, of.rows(first, first + size), of.rows(fresh, fresh + size), empty);
  };
  const auto move_entries = [&](const Tensor& of, unsigned char empty) {
    for (std::int64_t j = 0; j < store.entries(); ++j)
      rearrange(division, of.view(j * slots + first, {size}), of.view(j * slots + fresh, {size}), empty);
  };
  constexpr unsigned char zero = 0, minus_one = 0xFF;
  static_assert(no_place == -1);
  move(store.keys, zero);
  move(store.counts, zero);
  move(store.usage, zero);
  if (store.entries() > 1) move_entries(store.entry_counts, zero);
  move_entries(store.values, minus_one);
  move_entries(store.born, minus_one);
  move_entries(store.hit, minus_one);
  write_centroid(division.centroid_of_stay, store.centroids.rows(part, part + 1));
  write_centroid(division.centroid_of_go, store.centroids.rows(fresh / size, fresh / size + 1));
  store.reach += size;
}

}  // namespace

PartitionSplit plan_partition_split(Threads& threads, std::span<const double> keys, std::span<const double> counts,
                                    std::span<const double> centroid) {
  const Cloud cloud(threads, keys, centroid.size());
  SlotNumbers slots;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    if (counts[m] > 0) slots.push_back(static_cast<std::int64_t>(m));
  }
  PartitionSplit out;
  if (slots.empty()) {
    out.centroid_of_stay.assign(centroid.begin(), centroid.end());
    out.centroid_of_go.assign(centroid.size(), 0.0);
    return out;
  }
  // Starts with two slots that are far apart, then iterates with the means of the two halves (2-means).
  const std::vector<double> one = cloud.key(cloud.last_along(slots, {centroid.begin(), centroid.end()}));
  std::vector<double> axis = minus(one, cloud.key(cloud.last_along(slots, one)));
  // Border between the halves along the axis. Not set in the first iteration, which splits at the median.
  std::optional<double> border;
  const std::size_t all = slots.size();
  for (int round = 0; round <= rounds; ++round) {
    const std::vector<double> at = cloud.along(slots, axis);
    std::vector<std::size_t> order(all);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return at[a] != at[b] ? at[a] < at[b] : a < b; });
    std::size_t going = all / 2;
    if (border) {
      going = static_cast<std::size_t>(std::count_if(at.begin(), at.end(), [&](double x) { return x > *border; }));
      going = std::clamp(going, all / 4, all - all / 4);
    }
    out.stay.clear();
    out.go.clear();
    for (std::size_t i = 0; i < all; ++i) (i < all - going ? out.stay : out.go).push_back(slots[order[i]]);
    std::sort(out.stay.begin(), out.stay.end());
    std::sort(out.go.begin(), out.go.end());
    if (out.go.empty() || out.stay.empty()) break;
    const std::vector<double> here = middle(cloud.sum(out.stay, {}), out.stay.size()),
                              there = middle(cloud.sum(out.go, {}), out.go.size());
    axis = minus(there, here);
    border = 0;
    for (std::size_t c = 0; c < axis.size(); ++c) *border += axis[c] * (here[c] + there[c]) / 2;
  }
  out.centroid_of_stay = cloud.sum(out.stay, counts);
  out.centroid_of_go = cloud.sum(out.go, counts);
  return out;
}

void split_full_partitions(Context& ctx, std::span<const std::int32_t> used, Store& store) {
  for (std::size_t part = 0; part < used.size(); ++part) {
    if (store.reach == store.slots()) return;
    if (is_full(used[part], store.partition_size())) divide(ctx, static_cast<std::int64_t>(part), store);
  }
}

std::int64_t partition_slots_at_once(std::int64_t partition_size, std::int64_t visits) {
  constexpr std::int64_t scores_at_once = std::int64_t{1} << 25, most = 8192, least = 64;
  return std::min({partition_size, most, std::max(least, scores_at_once / std::max<std::int64_t>(visits, 1))});
}

}  // namespace some
