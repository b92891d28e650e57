// Stands in for library_cuda.cu in a build without a CUDA compiler.
#include "base/device.h"
#include "base/error.h"
#include "experts/library.h"

namespace some::experts::cuda {

LayerLibrary make_layer_library(Context&, const LibrarySpec&, int) { failed("{}", why_unavailable()); }

}  // namespace some::experts::cuda
