// The frozen library on the CPU, one piece of work per expert and matrix. This is the reference implementation that
// library_cuda.cu must match bit for bit.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "experts/library.h"
#include "experts/methods.h"

namespace some::cpu {

LayerLibrary make_layer_library(Context& ctx, const LibrarySpec& spec, int layer) {
  const LibraryMethod& method = check_library(spec);
  if (ctx.compute != DType::f32 && ctx.compute != DType::f64) {
    failed(Code::type_unsupported, "the CPU stores experts in fp32 or f64, not in {}", name_of(ctx.compute));
  }
  const auto recipe_of = [&](LibraryMatrix matrix, int rows, int cols) {
    return MatrixDraw{matrix, library_stream(spec.seed, layer, matrix), library_drop_stream(spec.seed, layer, matrix),
                      rows, cols};
  };
  const Block wanted = spec.wanted();
  LayerLibrary library;
  std::vector<MatrixDraw> recipes{recipe_of(LibraryMatrix::w1, spec.d_ffn, spec.d_model)};
  library.weights.w1 = Tensor::empty({wanted.count(), spec.d_ffn, spec.d_model}, ctx.compute);
  if (spec.has_w2) {
    recipes.push_back(recipe_of(LibraryMatrix::w2, spec.d_model, spec.d_ffn));
    library.weights.w2 = Tensor::empty({wanted.count(), spec.d_model, spec.d_ffn}, ctx.compute);
  }
  const std::size_t count = static_cast<std::size_t>(spec.d_model) * spec.d_ffn;
  const std::int64_t matrices = static_cast<std::int64_t>(recipes.size());
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(wanted.count() * matrices), 0);
  parallel_for(*ctx.threads, wanted.count() * matrices, [&](std::int64_t piece) {
    const MatrixDraw& recipe = recipes[static_cast<std::size_t>(piece % matrices)];
    const std::uint64_t first = static_cast<std::uint64_t>(wanted.begin + piece / matrices) * count;
    const std::size_t place = static_cast<std::size_t>(piece / matrices) * count;
    const Tensor& target = recipe.matrix == LibraryMatrix::w1 ? library.weights.w1 : library.weights.w2;
    std::vector<float> widened;
    float* out;
    if (ctx.compute == DType::f32) {
      out = target.data<float>() + place;
    } else {
      widened.resize(count);
      out = widened.data();
    }
    method.fill(recipe, first, out);
    std::uint64_t hash = 0;
    for (std::size_t j = 0; j < count; ++j) hash += hash_element(recipe.matrix, first + j, out[j]);
    hashes[static_cast<std::size_t>(piece)] = hash;
    if (ctx.compute == DType::f64) std::copy(widened.begin(), widened.end(), target.data<double>() + place);
  });
  for (const std::uint64_t hash : hashes) library.hash += hash;
  return library;
}

}  // namespace some::cpu
