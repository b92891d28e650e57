// The frozen library on the CPU, one piece of work an expert and matrix; the truth that library_cuda.cu repeats bit for
// bit.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "experts/elements.h"
#include "experts/library.h"
#include "experts/orthogonal.h"

namespace some::experts::cpu {
namespace {

// Four numbers of a stream lie in one random block. Written so that the compiler sees it and draws the block once: the
// same values as one by one, at a sixth of the time.
void fill_default(const RandomStream& stream, std::uint64_t first, std::size_t count, float bound, float* out) {
  std::size_t j = 0;
  for (; j < count && ((first + j) & 3) != 0; ++j) out[j] = default_element(stream, first + j, bound);
  for (; j + 4 <= count; j += 4) {
    const std::uint64_t block = (first + j) & ~std::uint64_t{3};
    out[j] = default_element(stream, block, bound);
    out[j + 1] = default_element(stream, block | 1, bound);
    out[j + 2] = default_element(stream, block | 2, bound);
    out[j + 3] = default_element(stream, block | 3, bound);
  }
  for (; j < count; ++j) out[j] = default_element(stream, first + j, bound);
}

void drop_half_of_columns(const RandomStream& drops, std::uint64_t first, int rows, int cols, float* out) {
  using Entry = std::pair<std::uint64_t, int>;  // priority, row: compared in this order
  const int dropped = dropped_in_column(rows);
  constexpr int kColumns = 8;  // columns at a time, because a line of memory holds several
  std::vector<Entry> entries(static_cast<std::size_t>(kColumns) * rows);
  for (int column = 0; column < cols; column += kColumns) {
    const int width = std::min(kColumns, cols - column);
    for (int row = 0; row < rows; ++row) {
      const std::uint64_t index = first + static_cast<std::uint64_t>(row) * cols + column;
      for (int c = 0; c < width; ++c)
        entries[static_cast<std::size_t>(c) * rows + row] = {drop_priority(drops, index + c), row};
    }
    for (int c = 0; c < width; ++c) {
      const auto begin = entries.begin() + static_cast<std::ptrdiff_t>(c) * rows;
      std::nth_element(begin, begin + (dropped - 1), begin + rows);
      for (auto entry = begin; entry != begin + dropped; ++entry)
        out[static_cast<std::ptrdiff_t>(entry->second) * cols + column + c] = 0.0f;
    }
  }
}

struct MatrixRecipe {
  LibraryMatrix matrix;
  RandomStream stream, drops;
  int rows, cols;
};

void fill_matrix(const std::string& method, const MatrixRecipe& recipe, std::uint64_t first, float* out) {
  const std::size_t count = static_cast<std::size_t>(recipe.rows) * recipe.cols;
  if (method == "default") {
    fill_default(recipe.stream, first, count, default_bound(recipe.cols), out);
  } else if (method == "orthogonal") {
    for (std::size_t j = 0; j < count; ++j) out[j] = gaussian_element(recipe.stream, first + j);
    orthogonalize(out, recipe.rows, recipe.cols);
  } else {
    for (std::size_t j = 0; j < count; ++j) out[j] = sparse_element(recipe.stream, first + j);
    drop_half_of_columns(recipe.drops, first, recipe.rows, recipe.cols, out);
  }
}

void check(const LibrarySpec& spec) {
  if (spec.method != "default" && spec.method != "orthogonal" && spec.method != "sparse") {
    bad_input("some.init = \"{}\" is not an expert library; choose default, orthogonal or sparse", spec.method);
  }
  if (spec.experts < 1 || spec.d_model < 1 || spec.d_ffn < 1) {
    bad_input(
        "an expert library needs at least one expert, d_model >= 1 and d_ffn >= 1; asked for {} experts, d_model {}, "
        "d_ffn {}",
        spec.experts, spec.d_model, spec.d_ffn);
  }
}

}  // namespace

LayerLibrary make_layer_library(Context& ctx, const LibrarySpec& spec, int layer) {
  check(spec);
  if (ctx.compute != DType::f32 && ctx.compute != DType::f64) {
    failed("the CPU holds experts in fp32 or f64, not in {}", name_of(ctx.compute));
  }
  const auto recipe_of = [&](LibraryMatrix matrix, int rows, int cols) {
    return MatrixRecipe{matrix, library_stream(spec.seed, layer, matrix), library_drop_stream(spec.seed, layer, matrix),
                        rows, cols};
  };
  LayerLibrary library;
  std::vector<MatrixRecipe> recipes{recipe_of(LibraryMatrix::w1, spec.d_ffn, spec.d_model)};
  library.weights.w1 = Tensor::empty({spec.experts, spec.d_ffn, spec.d_model}, ctx.compute);
  if (spec.has_w2) {
    recipes.push_back(recipe_of(LibraryMatrix::w2, spec.d_model, spec.d_ffn));
    library.weights.w2 = Tensor::empty({spec.experts, spec.d_model, spec.d_ffn}, ctx.compute);
  }
  const std::size_t count = static_cast<std::size_t>(spec.d_model) * spec.d_ffn;
  const std::int64_t matrices = static_cast<std::int64_t>(recipes.size());
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(spec.experts * matrices), 0);
  parallel_for(*ctx.threads, spec.experts * matrices, [&](std::int64_t piece) {
    const MatrixRecipe& recipe = recipes[static_cast<std::size_t>(piece % matrices)];
    const std::uint64_t first = static_cast<std::uint64_t>(piece / matrices) * count;
    const Tensor& target = recipe.matrix == LibraryMatrix::w1 ? library.weights.w1 : library.weights.w2;
    std::vector<float> widened;
    float* out;
    if (ctx.compute == DType::f32) {
      out = target.data<float>() + first;
    } else {
      widened.resize(count);
      out = widened.data();
    }
    fill_matrix(spec.method, recipe, first, out);
    std::uint64_t hash = 0;
    for (std::size_t j = 0; j < count; ++j) hash += hash_element(recipe.matrix, first + j, out[j]);
    hashes[static_cast<std::size_t>(piece)] = hash;
    if (ctx.compute == DType::f64) std::copy(widened.begin(), widened.end(), target.data<double>() + first);
  });
  for (const std::uint64_t hash : hashes) library.hash += hash;
  return library;
}

}  // namespace some::experts::cpu
