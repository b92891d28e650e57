#include <algorithm>

#include "inference/cuda/few_modulated.cuh"
#include "inference/cuda/few_rows.cuh"
#include "inference/cuda/many_rows.cuh"
#include "inference/cuda/reports.cuh"
#include "inference/cuda/sample.cuh"
#include "inference/cuda/steps.h"
#include "inference/cuda/transforms.cuh"
#include "tensor/cuda_state.h"

namespace some::decoding {
namespace {

template <typename Step>
void launch_kernel(CudaState& state, void (*kernel)(Step), dim3 blocks, int block_threads, int shared, int cluster,
                   const Step& step) {
  if (shared > 0) SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  // Uses the same split of L1 cache and shared memory for all kernels: a change drains the multiprocessors.
  SOME_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(cluster);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(block_threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = state.stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  SOME_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, step));
}

dim3 grid(std::int64_t x, std::int64_t y = 1) { return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)); }
std::int64_t over(std::int64_t items, std::int64_t per) { return (items + per - 1) / per; }

// Uses the largest tiles that keep the multiprocessors busy.
template <typename Step>
void launch_products(CudaState& state, const Step& step, std::int64_t column_tiles, int rows) {
  const auto run = [&]<int kRows>() {
    launch_kernel(state, product_kernel<kRows, Step>, grid(column_tiles, over(rows, kRows)), product_threads,
                  ProductShared<kRows>::bytes, 1, step);
  };
  if (column_tiles * over(rows, 64) < state.multiprocessors)
    run.template operator()<32>();
  else if (column_tiles * over(rows, 128) < state.multiprocessors)
    run.template operator()<64>();
  else
    run.template operator()<128>();
}

}  // namespace

int attention_shared_bytes(std::int64_t capacity) { return AttentionShared::bytes(capacity); }

void launch(CudaState& state, const AttentionStep& step) {
  launch_kernel(state, attention_few_kernel, grid(cluster_size * step.heads * over(step.in.rows, step.in.cluster_rows)),
                threads, AttentionShared::bytes(step.in.capacity), cluster_size, step);
}

void launch(CudaState& state, const FeedForwardStep& step) {
  launch_kernel(state, feed_forward_few_kernel,
                grid(cluster_size * over(step.hidden, hidden_part) * over(step.in.rows, step.in.cluster_rows)), threads,
                FeedForwardShared::bytes, cluster_size, step);
}

void launch(CudaState& state, const ModulatedStep& step) {
  launch_kernel(
      state, step.modulations.signs != nullptr ? modulated_few_kernel<true> : modulated_few_kernel<false>,
      grid(cluster_size * over(step.block.hidden, hidden_part) * over(step.block.in.rows, step.block.in.cluster_rows)),
      threads, ModulatedShared::bytes, cluster_size, step);
}

void launch(CudaState& state, const HeadStep& step) {
  const std::int64_t blocks = over(over(step.vocab, HeadShared::columns), cluster_size) * cluster_size;
  launch_kernel(state, head_few_kernel, grid(blocks, over(step.in.rows, step.in.cluster_rows)), threads,
                HeadShared::bytes, cluster_size, step);
}

void launch(CudaState& state, const Product& step) { launch_products(state, step, over(step.columns, 64), step.rows); }

void launch(CudaState& state, const ProductPair& step) {
  launch_products(state, step, over(step.first.columns, 64) + over(step.second.columns, 64), step.first.rows);
}

void launch(CudaState& state, const RowRoutes& step) {
  launch_kernel(state, row_routes_kernel, grid(over(step.rows, warps)), threads,
                warps * max_experts * static_cast<int>(sizeof(float)), 1, step);
}

void launch(CudaState& state, const ExpertProduct& step) {
  const std::int64_t rows = static_cast<std::int64_t>(step.product.rows) * step.choices;
  const auto run = [&]<int kRows>() {
    launch_kernel(state, product_kernel<kRows, ExpertProduct>,
                  grid(over(step.product.columns, 64), step.experts + rows / kRows), product_threads,
                  ProductShared<kRows>::bytes, 1, step);
  };
  // Chooses tiles about as large as an expert's share of the rows.
  if (rows <= 48 * step.experts)
    run.template operator()<32>();
  else
    run.template operator()<64>();
}

void launch(CudaState& state, const RowTransforms& step) {
  launch_kernel(state, row_transforms_kernel,
                grid(over(step.modulation.rows, transform_threads / 32), step.modulation.modulations.blocks),
                transform_threads, 0, 1, step);
}

void launch(CudaState& state, const RowModulation& step) {
  launch_kernel(state, row_modulation_kernel,
                grid(over(static_cast<std::int64_t>(step.rows) * step.columns / 2, threads)), threads, 0, 1, step);
}

void launch(CudaState& state, const RowAttention& step) {
  const std::int64_t items = static_cast<std::int64_t>(step.rows) * step.heads;
  launch_kernel(state, row_attention_kernel, grid(over(items, attention_threads / 32)), attention_threads,
                attention_bytes, 1, step);
}

void launch(CudaState& state, const RowKeys& step) {
  launch_kernel(state, row_keys_kernel, grid(over(static_cast<std::int64_t>(step.rows) * step.width / 4, threads)),
                threads, 0, 1, step);
}

void launch(CudaState& state, const RowEmbedding& step) {
  const std::int64_t items = std::max<std::int64_t>(static_cast<std::int64_t>(step.rows) * step.width / 4, step.clears);
  launch_kernel(state, row_embedding_kernel, grid(over(items, threads)), threads, 0, 1, step);
}

void launch(CudaState& state, const RowNorm& step) {
  launch_kernel(state, row_norm_kernel, grid(over(step.rows, warps)), threads, 0, 1, step);
}

void launch(CudaState& state, const RowConvolution& step) {
  const std::int64_t items = static_cast<std::int64_t>(step.rows) * step.width;
  launch_kernel(state, row_convolution_kernel, grid(over(items / 4, threads)), threads, 0, 1, step);
}

void launch(CudaState& state, const SampleStep& step) {
  const int per_thread = static_cast<int>(over(step.vocab, sample_threads));
  const auto kernel_of = [&]<int kBlocks>() {
    return per_thread <= 8    ? sample_kernel<8, kBlocks>
           : per_thread <= 16 ? sample_kernel<16, kBlocks>
           : per_thread <= 32 ? sample_kernel<32, kBlocks>
                              : sample_kernel<64, kBlocks>;
  };
  const auto kernel =
      step.wanted <= state.multiprocessors ? kernel_of.template operator()<1>() : kernel_of.template operator()<2>();
  launch_kernel(state, kernel, grid(step.wanted), sample_threads, static_cast<int>(sizeof(SampleShared)), 1, step);
}

void launch(CudaState& state, const RowPlaces& step) {
  launch_kernel(state, row_places_kernel, grid(over(step.rows, threads)), threads, 0, 1, step);
}

void launch(CudaState& state, const RowReport& step) {
  launch_kernel(state, row_report_kernel,
                grid(over(static_cast<std::int64_t>(step.rows) * step.report.choices, threads)), threads, 0, 1, step);
}

void launch(CudaState& state, const StateReport& step) {
  launch_kernel(state, state_report_kernel, grid(over(static_cast<std::int64_t>(step.wanted) * step.width, threads)),
                threads, 0, 1, step);
}

bool multiply_rows(Context& ctx, const Tensor& x, const Tensor& weights, const Tensor* bias, bool gelu, Tensor& y) {
  const std::int64_t columns = weights.dim(0), k = weights.dim(1);
  if (x.dtype() != DType::bf16 || weights.dtype() != DType::bf16 || k % 8 != 0 || columns % 2 != 0 ||
      (gelu && y.dtype() != DType::bf16))
    return false;
  Product product{};
  product.a = static_cast<const bf16*>(x.raw());
  product.weight = static_cast<const bf16*>(weights.raw());
  product.bias = bias != nullptr ? bias->data<float>() : nullptr;
  product.rows = static_cast<int>(x.dim(0));
  product.columns = static_cast<int>(columns);
  product.k = static_cast<int>(k);
  product.sum_parts = 1;
  product.result = y.dtype() == DType::f32 ? ProductResult::logits : gelu ? ProductResult::gelu : ProductResult::plain;
  if (y.dtype() == DType::f32)
    product.logits = y.data<float>();
  else
    product.y = static_cast<bf16*>(y.raw());
  if (product.rows > 0) launch(*ctx.cuda, product);
  return true;
}

bool attend_rows(Context& ctx, const Tensor& qkv, const Tensor& slots, const Tensor& positions, int heads,
                 Tensor& cache, Tensor& out) {
  const std::int64_t width = qkv.dim(1) / 3;
  if (qkv.dtype() != DType::bf16 || width != static_cast<std::int64_t>(heads) * head_size) return false;
  const int rows = static_cast<int>(qkv.dim(0));
  if (rows == 0) return true;
  const auto* const from = static_cast<const bf16*>(qkv.raw());
  auto* const kept = static_cast<bf16*>(cache.raw());
  const std::int32_t *const of_slots = slots.data<std::int32_t>(), *const at = positions.data<std::int32_t>();
  launch(*ctx.cuda, RowKeys{from, kept, cache.dim(1), of_slots, at, rows, static_cast<int>(width)});
  launch(*ctx.cuda,
         RowAttention{from, 3 * width, kept, cache.dim(1), of_slots, at, rows, heads, static_cast<bf16*>(out.raw())});
  return true;
}

void launch(CudaState& state, const TokenStep& step) {
  launch_kernel(state, token_kernel, grid(over(step.rows, threads)), threads, 0, 1, step);
}

}  // namespace some::decoding
