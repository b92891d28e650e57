#include "tensor/finite.h"

#include <algorithm>
#include <cmath>

namespace some {
namespace {

template <typename T>
bool all_of(const Tensor& tensor) {
  const T* numbers = tensor.data<T>();
  return std::all_of(numbers, numbers + tensor.elements(), [](T one) {
    if constexpr (std::is_same_v<T, BFloat16>)
      return std::isfinite(to_float(one));
    else
      return std::isfinite(one);
  });
}

}  // namespace

bool all_finite(const Tensor& tensor) {
  const Tensor here = tensor.device().is_cpu() ? tensor : tensor.to(Device::cpu);
  switch (here.dtype()) {
    case DType::f32: return all_of<float>(here);
    case DType::f64: return all_of<double>(here);
    case DType::bf16: return all_of<BFloat16>(here);
    case DType::i32:
    case DType::i64: break;
  }
  return true;
}

}  // namespace some
