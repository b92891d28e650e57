// Sizes of kernels' parameters, which no call of the runtime passes: read from the code for the GPU.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace fake_cuda {

// Adds the kernels of one fat binary (what __cudaRegisterFatBinary receives) by their mangled names. Adds none where
// the code is compressed or not of a known form.
void read_kernel_parameters(const void* fat_binary, std::map<std::string, std::vector<std::size_t>>& sizes);

}  // namespace fake_cuda
