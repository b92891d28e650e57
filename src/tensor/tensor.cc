#include "tensor/tensor.h"

#include <bit>
#include <cstring>

namespace some {

std::size_t size_of(DType type) {
  switch (type) {
    case DType::f32: return 4;
    case DType::f64: return 8;
    case DType::bf16: return 2;
    case DType::i32: return 4;
    case DType::i64: return 8;
  }
  failed(Code::type_unsupported, "no such element type: {}", static_cast<int>(type));
}

const char* name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
  }
  failed(Code::type_unsupported, "no such element type: {}", static_cast<int>(type));
}

BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could clear the fraction of a NaN and turn it into an infinity, so NaNs stay quiet NaNs.
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x0040u)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

float to_float(BFloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dim : dims_) {
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product))
      failed(Code::shape_mismatch, "a tensor cannot have the shape {}", text());
  }
  return product;
}

std::string Shape::text() const { return fmt::format("[{}]", fmt::join(dims_, ", ")); }

Tensor Tensor::empty(Shape shape, DType type, const Device& device) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(type);
  // An empty tensor still has an address, which distinguishes it from a missing tensor.
  void* data = device_allocate(device, bytes);
  std::shared_ptr<void> owner(data, [device, bytes](void* memory) { device_release(device, memory, bytes); });
  return wrap(data, std::move(shape), type, device, std::move(owner));
}

Tensor Tensor::zeros(Shape shape, DType type, const Device& device) {
  Tensor tensor = empty(std::move(shape), type, device);
  tensor.zero();
  return tensor;
}

Tensor Tensor::wrap(void* data, Shape shape, DType type, const Device& device, std::shared_ptr<void> owner) {
  Tensor tensor;
  tensor.owner_ = std::move(owner);
  tensor.data_ = data;
  tensor.shape_ = std::move(shape);
  tensor.type_ = type;
  tensor.device_ = device;
  return tensor;
}

Tensor Tensor::reshape(Shape shape) const {
  if (shape.elements() != elements())
    failed(Code::shape_mismatch, "a tensor of shape {} cannot be viewed as {}", shape_.text(), shape.text());
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  if (shape_.rank() == 0 || begin < 0 || begin > end || end > shape_[0])
    failed(Code::shape_mismatch, "a tensor of shape {} has no rows {} to {}", shape_.text(), begin, end);
  std::vector<std::int64_t> dims = shape_.dims();
  std::int64_t row = 1;
  for (std::size_t axis = 1; axis < dims.size(); ++axis) row *= dims[axis];
  dims[0] = end - begin;
  return view(begin * row, Shape(std::move(dims)));
}

Tensor Tensor::view(std::int64_t first_element, Shape shape) const {
  const std::int64_t wanted = shape.elements();
  if (first_element < 0 || first_element > elements() || wanted > elements() - first_element)
    failed(Code::shape_mismatch, "a tensor of shape {} has no part of shape {} from element {}", shape_.text(),
           shape.text(), first_element);
  Tensor result = *this;
  if (data_ != nullptr)
    result.data_ = static_cast<char*>(data_) + static_cast<std::size_t>(first_element) * size_of(type_);
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::clone() const { return to(device_); }

Tensor Tensor::to(const Device& device) const {
  if (data_ == nullptr) return {};
  Tensor result = empty(shape_, type_, device);
  device_copy(device, result.data_, device_, data_, bytes());
  return result;
}

namespace {

template <typename To, typename From>
To convert_element(From value) {
  if constexpr (std::is_same_v<From, BFloat16>) {
    return convert_element<To>(to_float(value));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <typename Function>
void with_element_type(DType type, Function&& function) {
  switch (type) {
    case DType::f32: return function(float{});
    case DType::f64: return function(double{});
    case DType::bf16: return function(BFloat16{});
    case DType::i32: return function(std::int32_t{});
    case DType::i64: return function(std::int64_t{});
  }
}

}  // namespace

Tensor Tensor::to(DType type) const {
  if (data_ == nullptr) return {};
  if (type == type_) return clone();
  if (device_.is_cuda()) return to(Device::cpu).to(type).to(device_);
  Tensor result = empty(shape_, type, Device::cpu);
  const std::int64_t n = elements();
  with_element_type(type_, [&](auto from) {
    with_element_type(type, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const From* source = static_cast<const From*>(data_);
      To* target = static_cast<To*>(result.data_);
      for (std::int64_t i = 0; i < n; ++i) target[i] = convert_element<To>(source[i]);
    });
  });
  return result;
}

void Tensor::zero() {
  if (data_ != nullptr) device_zero(device_, data_, bytes());
}

void Tensor::copy_from(const Tensor& source) {
  if (source.shape_ != shape_ || source.type_ != type_ || (source.data_ == nullptr) != (data_ == nullptr))
    failed(Code::shape_mismatch, "cannot copy a tensor {} {} into one {} {}", name_of(source.type_),
           source.shape_.text(), name_of(type_), shape_.text());
  if (data_ != nullptr) device_copy(device_, data_, source.device_, source.data_, bytes());
}

void Tensor::type_mismatch(DType wanted) const {
  failed(Code::type_unsupported, "a tensor {} of shape {} was used as {}", name_of(type_), shape_.text(),
         name_of(wanted));
}

std::vector<double> read_vector(const Tensor& tensor) {
  const Tensor host = tensor.device().is_cpu() ? tensor : tensor.to(Device::cpu);
  std::vector<double> out(static_cast<std::size_t>(host.elements()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    switch (host.dtype()) {
      case DType::f64: out[i] = host.data<double>()[i]; break;
      case DType::f32: out[i] = host.data<float>()[i]; break;
      case DType::bf16: out[i] = to_float(host.data<BFloat16>()[i]); break;
      case DType::i32: out[i] = host.data<std::int32_t>()[i]; break;
      case DType::i64: out[i] = static_cast<double>(host.data<std::int64_t>()[i]); break;
    }
  }
  return out;
}

}  // namespace some
