// A tensor: shape, element type, device and shared memory, without arithmetic. Operations (src/ops) take tensors and a
// Context. Copying a Tensor shares its memory; clone() copies it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "tensor/device.h"

namespace some {

enum class DType : std::uint8_t { f32, f64, bf16, i32, i64 };

std::size_t size_of(DType type);
const char* name_of(DType type);

// The CPU only stores and converts bfloat16; bf16 arithmetic happens on the GPU.
struct BFloat16 {
  std::uint16_t bits;
};
BFloat16 to_bfloat16(float value);  // round to nearest, ties to even
float to_float(BFloat16 value);

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else {
    static_assert(std::is_same_v<T, std::int64_t>, "no such tensor element type");
    return DType::i64;
  }
}

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<std::int64_t> dims) : dims_(std::move(dims)) {}
  int rank() const { return static_cast<int>(dims_.size()); }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis < 0 ? axis + rank() : axis)]; }
  std::int64_t elements() const;
  const std::vector<std::int64_t>& dims() const { return dims_; }
  bool operator==(const Shape&) const = default;
  std::string text() const;  // "[2, 3]"

 private:
  std::vector<std::int64_t> dims_;
};

class Tensor {
 public:
  Tensor() = default;
  static Tensor empty(Shape shape, DType type, const Device& device = Device::cpu);
  static Tensor zeros(Shape shape, DType type, const Device& device = Device::cpu);
  // Wraps memory that `owner` keeps alive.
  static Tensor wrap(void* data, Shape shape, DType type, const Device& device, std::shared_ptr<void> owner);

  explicit operator bool() const { return data_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(int axis) const { return shape_[axis]; }
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type_); }
  DType dtype() const { return type_; }
  const Device& device() const { return device_; }

  void* raw() const { return data_; }
  // Returns a typed pointer; fails if T is not the element type, which is a programming error.
  template <typename T>
  T* data() const {
    if (data_ != nullptr && dtype_of<T>() != type_) type_mismatch(dtype_of<T>());
    return static_cast<T*>(data_);
  }

  Tensor reshape(Shape shape) const;                           // same elements, another shape
  Tensor rows(std::int64_t begin, std::int64_t end) const;     // slice of the first axis
  Tensor view(std::int64_t first_element, Shape shape) const;  // any contiguous part
  Tensor clone() const;
  Tensor to(const Device& device) const;  // a copy on that device
  Tensor to(DType type) const;            // a converted copy (on the CPU if necessary)
  void zero();
  void copy_from(const Tensor& source);  // same shape and type, any devices

 private:
  [[noreturn]] void type_mismatch(DType wanted) const;
  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  Shape shape_;
  DType type_ = DType::f32;
  Device device_;
};

std::vector<double> read_vector(const Tensor& tensor);  // a copy on the host; any element type, any device

}  // namespace some
