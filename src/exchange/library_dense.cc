#include "exchange/library_dense.h"

#include <filesystem>

#include "core/error.h"
#include "core/system_memory.h"
#include "experts/hadamard.h"
#include "model/library_spec.h"
#include "runs/run.h"
#include "runtime/context.h"

namespace some {

WrittenLibrary write_dense_library(const DenseLibrary& options) {
  const ModelConfig model = read_run_recipe(options.run).model;
  if (model.ffn != Ffn::some || !model.use_library)
    bad_input(Code::export_unsupported, "{}: has no expert library ({})", options.run,
              model.ffn != Ffn::some ? "its feed-forward blocks are not experts" : "some.use_library = false");
  if (is_library_file(model.init))
    bad_input(Code::export_unsupported, "{}: its library is already a file (some.init = \"{}\")", options.run,
              model.init);
  // A library file always has both matrices; runs without w2 do not read it.
  LibrarySpec spec = library_spec(model);
  spec.has_w2 = true;
  const double bytes = 2.0 * sizeof(float) * model.layers * model.experts * model.d_model * model.d_ffn;
  if (const double limit = memory_limit(); bytes > limit)
    bad_input(Code::out_of_memory,
              "{}: its experts as matrices require {:.1f} GB of memory, but {:.1f} GB are available", options.run,
              bytes / 1e9, limit / 1e9);
  const std::shared_ptr<Context> ctx = make_context(DeviceName{}, Precision::fp32, options.host);
  std::vector<LayerMatrices> layers;
  for (int layer = 0; layer < model.layers; ++layer) {
    const ExpertWeights weights = model.init == hadamard_method ? write_out_hadamard(*ctx, spec, layer)
                                                                : make_layer_library(*ctx, spec, layer).weights;
    layers.push_back({weights.w1, weights.w2});
  }
  const std::string transforms =
      model.init == hadamard_method ? fmt::format(", {} per block", model.hadamard_transforms) : "";
  WrittenLibrary out;
  out.path = write_library_file(options.folder, layers,
                                fmt::format("{}{}, seed {}", model.init, transforms, model.library_seed));
  out.about = read_library_file(out.path);
  return out;
}

}  // namespace some
