// A safetensors file in fp16, as other programs write it; the program itself only reads such.
#pragma once

#include <immintrin.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace some {

inline std::uint16_t half_bits(float value) { return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }
inline float half_value(std::uint16_t bits) { return _cvtsh_ss(bits); }

// Tensors of float32 become fp16, others stay as they are.
inline void write_half_file(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    const bool narrowed = tensor.dtype() == DType::f32;
    if (narrowed) {
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const std::uint16_t bits = half_bits(tensor.data<float>()[i]);
        data.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      }
    } else {
      data.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
    }
    header[name] = {{"dtype", narrowed                       ? "F16"
                              : tensor.dtype() == DType::f64 ? "F64"
                                                             : "I64"},
                    {"shape", tensor.shape().dims()},
                    {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t size = text.size();
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&size), 8) << text << data;
}

}  // namespace some
