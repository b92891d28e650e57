#include "memory/store.h"

#include <algorithm>
#include <utility>

#include "ops/elementwise.h"

namespace some {

Tensor equal_shares(Context& ctx, const MemorySettings& settings) {
  Tensor shares = Tensor::empty({settings.mixed()}, ctx.master, ctx.device);
  fill(ctx, 1.0 / static_cast<double>(settings.mixed()), shares);
  return shares;
}

Store make_store(Context& ctx, const MemorySettings& settings, const Tensor& mean) {
  const std::int64_t slots = settings.slots, d = mean.dim(0);
  const std::int64_t entries = settings.values;
  const auto no_token = [&] {
    Tensor host = Tensor::empty({entries, slots}, DType::i32);
    std::fill_n(host.data<std::int32_t>(), entries * slots, -1);
    return host.to(ctx.device);
  };
  const auto at_no_place = [&] {
    Tensor host = Tensor::empty({entries, slots}, DType::i64);
    std::fill_n(host.data<std::int64_t>(), entries * slots, no_place);
    return host.to(ctx.device);
  };
  Store store;
  store.mean = mean.to(ctx.master).to(ctx.device);
  store.keys = Tensor::zeros({slots, d}, ctx.master, ctx.device);
  store.values = no_token();
  if (entries > 1) store.entry_counts = Tensor::zeros({entries, slots}, ctx.master, ctx.device);
  store.counts = Tensor::zeros({slots}, ctx.master, ctx.device);
  store.usage = Tensor::zeros({slots}, ctx.master, ctx.device);
  store.shares = equal_shares(ctx, settings);
  store.born = at_no_place();
  store.hit = at_no_place();
  if (settings.partitions > 1) {
    store.centroids = Tensor::zeros({settings.partitions, d}, ctx.master, ctx.device);
    store.reach = store.partition_size();  // only the first partition is active
  }
  return store;
}

void replace_store(Context& ctx, Store refined, Store& store) {
  finish_refinement(ctx, refined);
  refined.reach = store.reach;
  refined.shares = store.shares;
  store = std::move(refined);
}

namespace {

// near: view into a tensor shared by all windows, so that it is cleared only once.
Matches found_of(Context& ctx, const MemorySettings& settings, std::int64_t positions, const Tensor& near) {
  const auto beta_count = static_cast<std::int64_t>(settings.beta.size());
  Matches out;
  out.target_prob = ctx.scratch({beta_count, positions}, ctx.master);
  out.nearest = ctx.scratch({positions}, DType::i32);
  out.product = ctx.scratch({positions}, ctx.master);
  out.near = near;
  return out;
}

Tensor nothing_near(Context& ctx, std::int64_t positions) {
  if (ctx.device.is_cpu()) return {};
  Tensor near = ctx.scratch({positions}, DType::i64);
  near.zero();
  return near;
}

}  // namespace

Matches make_matches(Context& ctx, const MemorySettings& settings, std::int64_t positions) {
  return found_of(ctx, settings, positions, nothing_near(ctx, positions));
}

std::vector<Matches> make_matches(Context& ctx, const Store& store, const MemorySettings& settings,
                                  const Tensor& queries, std::span<const Rows> windows) {
  const Tensor near = nothing_near(ctx, queries.dim(0));
  std::vector<Matches> out;
  for (const Rows& window : windows)
    out.push_back(
        found_of(ctx, settings, window.end - window.begin, near ? near.rows(window.begin, window.end) : Tensor()));
  split_windows(ctx, store, queries, windows, out);
  return out;
}

}  // namespace some
