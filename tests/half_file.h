// Writes a safetensors file in fp16, as other programs do; our own code only reads fp16.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace some {

inline float half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return sign * (fraction == 0 ? INFINITY : NAN);
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25));
}

// Rounds to the nearest half, ties to even.
inline std::uint16_t half_bits(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float size = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (size >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size == 0.0f) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);                    // size = m * 2^exponent, 0.5 <= m < 1
  const int unit = std::max(exponent - 11, -24);  // 2^unit: weight of the last digit of a half
  const auto count = static_cast<int>(std::nearbyint(std::ldexp(size, -unit)));
  return static_cast<std::uint16_t>(sign | (((unit + 24) << 10) + count));
}

// Converts tensors of float32 to fp16; others stay as they are.
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
