// Sizes of kernel parameters, which no call of the runtime passes: read from the GPU code.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace fake_cuda {

// Adds the kernels of one fat binary (the argument of __cudaRegisterFatBinary) by their mangled names. Adds none if the
// code is compressed or in an unknown format.
void read_kernel_parameters(const void* fat_binary, std::map<std::string, std::vector<std::size_t>>& sizes);

}  // namespace fake_cuda
