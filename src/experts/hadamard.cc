#include "experts/hadamard.h"

#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "experts/elements.h"

namespace some {
namespace {

HadamardSizes sizes_of(const LibrarySpec& spec) { return {spec.d_model, spec.d_ffn, spec.transforms}; }

RandomStream signs_of(const LibrarySpec& spec, int layer, LibraryMatrix matrix) {
  return random_stream(spec.seed, library_stream_name(layer, matrix) + ".signs");
}

Tensor cached_words(const Context& ctx, const LibrarySpec& spec, const RandomStream& stream) {
  const std::uint64_t count = sizes_of(spec).words_per_expert() * static_cast<std::uint64_t>(spec.experts);
  if (count > hadamard_cache_bytes / sizeof(std::uint64_t)) return {};
  const Tensor words = Tensor::empty({static_cast<std::int64_t>(count)}, DType::i64);
  for (std::uint64_t n = 0; n < count; ++n) words.data<std::int64_t>()[n] = static_cast<std::int64_t>(stream.bits64(n));
  return ctx.device.is_cpu() ? words : words.to(ctx.device);
}

void transform(std::vector<double>& x) {
  for (std::size_t stride = 1; stride < x.size(); stride *= 2) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((i & stride) != 0) continue;
      const double a = x[i], b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
}

// Computes row i of block B: the transposed block applied to a unit vector.
void row_of_block(const HadamardSizes& sizes, const RandomStream& signs, std::uint64_t expert, int block, int i,
                  std::vector<double>& row) {
  std::fill(row.begin(), row.end(), 0.0);
  row[static_cast<std::size_t>(i)] = 1;
  for (int m = sizes.transforms - 1; m >= 0; --m) {
    transform(row);
    const std::uint64_t first = sizes.first_word(expert, block, m);
    for (std::size_t j = 0; j < row.size(); ++j) {
      if ((signs.bits64(first + j / 64) >> (j % 64) & 1) != 0) row[j] = -row[j];
    }
  }
}

}  // namespace

std::vector<std::string> seeded_libraries() {
  std::vector<std::string> names = library_methods();
  names.emplace_back(hadamard_method);
  return names;
}

HadamardExperts make_hadamard_experts(Context& ctx, const LibrarySpec& spec, int layer) {
  HadamardExperts out;
  out.experts = spec.experts;
  out.sizes = sizes_of(spec);
  out.has_w2 = spec.has_w2;
  out.stream1 = signs_of(spec, layer, LibraryMatrix::w1);
  out.stream2 = signs_of(spec, layer, LibraryMatrix::w2);
  out.cached1 = cached_words(ctx, spec, out.stream1);
  if (spec.has_w2) out.cached2 = cached_words(ctx, spec, out.stream2);
  return out;
}

std::uint64_t hadamard_hash(const LibrarySpec& spec, int layer) {
  return random_stream(spec.seed,
                       fmt::format("hadamard {} layer {} experts {} d_model {} d_ffn {} w2 {}", spec.transforms, layer,
                                   spec.experts, spec.d_model, spec.d_ffn, spec.has_w2 ? 1 : 0))
      .key;
}

ExpertWeights write_out_hadamard(const Host& host, const LibrarySpec& spec, int layer) {
  const HadamardSizes sizes = sizes_of(spec);
  const std::int64_t d = spec.d_model, f = spec.d_ffn, size = sizes.size();
  ExpertWeights out;
  out.w1 = Tensor::empty({spec.experts, f, d}, DType::f32);
  if (spec.has_w2) out.w2 = Tensor::empty({spec.experts, d, f}, DType::f32);
  const RandomStream signs1 = signs_of(spec, layer, LibraryMatrix::w1),
                     signs2 = signs_of(spec, layer, LibraryMatrix::w2);
  parallel_for(*host.threads, spec.experts, [&](std::int64_t e) {
    std::vector<double> row(static_cast<std::size_t>(size));
    for (std::int64_t r = 0; r < f; ++r) {
      const int block = static_cast<int>(r / size), i = static_cast<int>(r % size);
      row_of_block(sizes, signs1, static_cast<std::uint64_t>(e), block, i, row);
      for (std::int64_t j = 0; j < d; ++j)
        out.w1.data<float>()[(e * f + r) * d + j] =
            static_cast<float>(sizes.scale1() * row[static_cast<std::size_t>(j)]);
      if (!spec.has_w2) continue;
      row_of_block(sizes, signs2, static_cast<std::uint64_t>(e), block, i, row);
      for (std::int64_t j = 0; j < d; ++j)
        out.w2.data<float>()[(e * d + j) * f + r] =
            static_cast<float>(sizes.scale2() * row[static_cast<std::size_t>(j)]);
    }
  });
  return out;
}

}  // namespace some
