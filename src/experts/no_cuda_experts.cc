// Stands in for library_cuda.cu in a build without a CUDA compiler.
#include "core/error.h"
#include "experts/library.h"
#include "tensor/device.h"

namespace some::cuda {

LayerLibrary make_layer_library(Context&, const LibrarySpec&, int) { failed("{}", unavailable_reason_text()); }

}  // namespace some::cuda
